#!/usr/bin/env bash
# From nothing to a private generator of handwritten digits: installs, trains, exports, evaluates. Minutes on 2 cores.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install eval
evaluate_flags=(--quick)
run quickstart --preset digits --epsilon 10
