#!/usr/bin/env bash
# table8.sh [FLAGS]: Table 8 of the DataLens paper, DP-SGD with TopAgg by k and epsilon: trains what is missing in
# runs/table8, and writes table8.md and table8.csv there. The same command again continues. FLAGS are those of
# tables8to10.py beside this file: `--epsilons 0.2 1`, `--ks 0.8`, `--seeds 1` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install
"$venv/bin/python" "$project/run_scripts/reproduce/tables8to10.py" --table 8 --runs_dir "$runs/table8" "$@"
