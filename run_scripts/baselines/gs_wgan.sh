#!/usr/bin/env bash
# gs_wgan.sh DATASET [EPSILON [FLAGS]]: GS-WGAN, one of many Wasserstein discriminators at a time, at what that costs.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline gs_wgan "$@"
