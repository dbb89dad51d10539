#!/usr/bin/env bash
# dcgan.sh DATASET [FLAGS]: a conditional DC-GAN, NOT PRIVATE: the reference at epsilon = infinity.
# The same command again continues. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
baseline dcgan "${1:-mnist}" none "${@:2}"
