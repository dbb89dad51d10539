#!/usr/bin/env bash
# pate_cgan.sh DATASET [EPSILON [FLAGS]]: PATE-CGAN, few dense teachers and Confident-GNMax.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline pate_cgan "$@"
