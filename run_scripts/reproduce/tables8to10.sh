#!/usr/bin/env bash
# tables8to10.sh TABLE [FLAGS]: Table 8, 9 or 10 of the DataLens paper, DP-SGD with TopAgg: trains what is missing in
# runs/tableN, and writes tableN.md and tableN.csv there. Repeat the command to continue. FLAGS are those of
# tables8to10.py beside this file: `--epsilons 0.2 1`, `--ks 0.8`, `--seeds 1` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
table="${1:?8, 9 or 10}"
install
"$venv/bin/python" "$project/run_scripts/reproduce/tables8to10.py" --table "$table" --runs_dir "$runs/table$table" "${@:2}"
