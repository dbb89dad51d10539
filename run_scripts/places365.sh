#!/usr/bin/env bash
# places365.sh [EPSILON [FLAGS]]: three classes of scenes, by default with epsilon 1.
# Repeat the command to continue. FLAGS are those of `datalens train`. The paper does not publish its settings for
# this data set: they are ours, and so is delta = 1e-7, for 1.8 million records. The data is looked for in
# TFDS_DATA_DIR, and downloaded (26 GB) if it is not there.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
epsilon="${1:-1}"
install eval
run "places365_eps$epsilon" --preset places365 --epsilon "$epsilon" "${@:2}"
