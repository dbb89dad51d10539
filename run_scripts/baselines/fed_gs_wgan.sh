#!/usr/bin/env bash
# fed_gs_wgan.sh DATASET [EPSILON [FLAGS]]: federated GS-WGAN: users add noise themselves, the server is not trusted.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline fed_gs_wgan "$@"
