#!/usr/bin/env bash
# table5.sh [FLAGS]: Table 5 of the DataLens paper: TopAgg, D2P-Fed and FetchSGD at the same epsilon.
# Trains and evaluates what is missing in runs/table5, and writes table5.md, .csv and .png there. Repeat the command to
# continue. FLAGS are those of table5.py beside this file: `--size small`, `--epsilon 10`, `--seeds 1` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
"$venv/bin/python" "$project/run_scripts/reproduce/table5.py" --runs_dir "$runs/table5" "$@"
