#!/usr/bin/env bash
# table4.sh [FLAGS]: Table 4 of the DataLens paper: N, k, beta and c, one at a time.
# Trains and evaluates what is missing in runs/table4, and writes table4.md, .csv and .png there. Repeat the command to
# continue. FLAGS are those of table4.py beside this file: `--size small`, `--epsilon 10`, `--seeds 1` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
"$venv/bin/python" "$project/run_scripts/reproduce/table4.py" --runs_dir "$runs/table4" "$@"
