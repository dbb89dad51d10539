#!/usr/bin/env bash
# pate_gan.sh DATASET [EPSILON [FLAGS]]: PATE-GAN, teachers that vote on which synthetic images are real.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline pate_gan "$@"
