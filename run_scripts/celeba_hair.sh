#!/usr/bin/env bash
# celeba_hair.sh [EPSILON [FLAGS]]: the paper's settings, by default with epsilon 1.
# Repeat the command to continue. FLAGS are those of `datalens train`.
# TFDS_DATA_DIR names CelebA's official folder (img_align_celeba, list_attr_celeba.txt, list_eval_partition.txt) or a
# folder of TensorFlow Datasets; the data is downloaded if it is not there.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
epsilon="${1:-1}"
install eval
run "celeba_hair_eps$epsilon" --preset celeba_hair --epsilon "$epsilon" "${@:2}"
