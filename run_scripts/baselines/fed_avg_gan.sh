#!/usr/bin/env bash
# fed_avg_gan.sh DATASET [EPSILON [FLAGS]]: Fed Avg GAN: users train the server's discriminator, the server is trusted.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline fed_avg_gan "$@"
