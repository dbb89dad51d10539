#!/usr/bin/env bash
# dp_cgan.sh DATASET [EPSILON [FLAGS]]: DP-CGAN, DP-GAN with clipped gradients on synthetic images and SGD.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline dp_cgan "$@"
