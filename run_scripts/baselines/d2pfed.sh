#!/usr/bin/env bash
# d2pfed.sh DATASET [EPSILON [FLAGS]]: D2P-Fed, teachers that vote with rotated gradients in stochastic levels.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline d2pfed "$@"
