#!/usr/bin/env bash
# mnist.sh [EPSILON [FLAGS]]: the paper's settings, by default with epsilon 1.
# An hour or more on 2 cores; repeat the command to continue. FLAGS are those of `datalens train`.
# The data is looked for in TFDS_DATA_DIR, and downloaded if it is not there.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
epsilon="${1:-1}"
install eval
run "mnist_eps$epsilon" --preset mnist --epsilon "$epsilon" "${@:2}"
