#!/usr/bin/env bash
# fetchsgd.sh DATASET [EPSILON [FLAGS]]: FetchSGD, teachers whose votes are summed in a Count Sketch.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline fetchsgd "$@"
