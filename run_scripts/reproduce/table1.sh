#!/usr/bin/env bash
# table1.sh [FLAGS]: Tables 1 and 2 of the DataLens paper, with more methods: trains and evaluates what is missing of
# the table's runs, in runs/table1, and writes table1.md and table1.csv there. Repeat the command to continue.
# FLAGS are those of table1.py beside this file: `--methods METHOD ...`, `--epsilons 1`, `--size full` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
"$venv/bin/python" "$project/run_scripts/reproduce/table1.py" --runs_dir "$runs/table1" "$@"
