#!/usr/bin/env bash
# g_pate.sh DATASET [EPSILON [FLAGS]]: G-PATE, teachers that vote on projected image gradients.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline g_pate "$@"
