#!/usr/bin/env bash
# ray_local.sh [FLAGS]: the quick start's digits, with the teachers in two Ray actors of this machine. The generator is
# the same as in one process, except for the noise. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install ray,eval
evaluate_flags=(--quick)
run ray_local --preset digits --epsilon 10 --distribute ray --num_actors 2 "$@"
