#!/usr/bin/env bash
# dp_merf.sh DATASET [EPSILON [FLAGS]]: DP-MERF, one release of mean embeddings.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline dp_merf "$@"
