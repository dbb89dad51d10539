#!/usr/bin/env bash
# dp_gan.sh DATASET [EPSILON [FLAGS]]: DP-GAN, a discriminator trained by DP-SGD.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline dp_gan "$@"
