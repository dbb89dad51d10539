#!/usr/bin/env bash
# cifar10.sh [DATASET [SEEDS [EPSILON...]]]: DataLens+ on real CIFAR-10 with its defaults, compared with a release of
# class means alone and with DataLens' teachers (TopAgg), by default at epsilon 1 and 10, with 3 seeds. Trains and
# evaluates what is missing in runs/cifar10, half an hour to an hour and a half each on one core, and writes the table
# to compare/. Repeat the command to continue. DATASET: `cifar10`, or a copy such as `tfds:cifar10_jpeg`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
dataset="${1:-cifar10}"
seeds="${2:-3}"
epsilons="${*:3}"
install eval
evaluate_flags=(--metrics utility --seeds 1)
for epsilon in ${epsilons:-1 10}; do
  "$venv/bin/python" "$project/run_scripts/reproduce/plus_ablation.py" --runs_dir "$runs/cifar10" \
      --dataset "$dataset" --epsilon "$epsilon" --seeds "$seeds" --parts whole means_alone
  for ((seed = 0; seed < seeds; seed++)); do
    run "cifar10/topagg_eps${epsilon}_seed$seed" --preset cifar10 --dataset "$dataset" --epsilon "$epsilon" \
        --seed "$seed" --output_contrast 2 --discriminator_filters 16 --discriminator_units 64
  done
done
datalens compare "$runs"/cifar10/*_seed* --output_dir "$runs/cifar10/compare"
