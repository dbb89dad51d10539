#!/usr/bin/env bash
# cifar10.sh [EPSILON [FLAGS]]: 32x32 colour images, by default with epsilon 1.
# Repeat the command to continue. FLAGS are those of `datalens train`, for example --dataset tfds:NAME. The settings
# are ours. The data is looked for in TFDS_DATA_DIR, and downloaded if it is not there.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
epsilon="${1:-1}"
install eval
run "cifar10_eps$epsilon" --preset cifar10 --epsilon "$epsilon" "${@:2}"
