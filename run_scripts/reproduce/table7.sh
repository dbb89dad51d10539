#!/usr/bin/env bash
# table7.sh [FLAGS]: Table 7 of the DataLens paper: top-k, stochastic quantization and threshold, each switched off.
# Trains and evaluates what is missing in runs/table7, and writes table7.md, .csv and .png there. Repeat the command to
# continue. FLAGS are those of table7.py beside this file: `--size small`, `--epsilon 10`, `--seeds 1` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
"$venv/bin/python" "$project/run_scripts/reproduce/table7.py" --runs_dir "$runs/table7" "$@"
