#!/usr/bin/env bash
# baseline.sh METHOD [DATASET [EPSILON [FLAGS]]]: any method on a data set, by default MNIST at epsilon 1: trains,
# evaluates and exports, in runs/METHOD_DATASET_epsEPSILON. `datalens methods` lists the methods. EPSILON is none for a
# method that is not private. Repeat the command to continue. FLAGS are those of `datalens train`.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
method="${1:?a method}" dataset="${2:-mnist}" epsilon="${3:-1}"
install eval
run "${method}_${dataset}_eps$epsilon" --method "$method" --dataset "$dataset" --epsilon "$epsilon" "${@:4}"
