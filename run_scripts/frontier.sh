#!/usr/bin/env bash
# frontier.sh [FLAGS]: epsilon against accuracy of DataLens+ and of DP-MERF, in runs/frontier. Trains and evaluates what
# is missing, half an hour each on 2 cores, and writes table1.md and table1.csv there and the plots to compare/.
# Repeat the command to continue. FLAGS are those of reproduce/table1.py: `--datasets mnist`, `--epsilons 1`,
# `--seeds 3` and others.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install eval
"$venv/bin/python" "$project/run_scripts/reproduce/table1.py" --runs_dir "$runs/frontier" \
    --frontier "$@"
"$venv/bin/datalens" compare "$runs"/frontier/*_eps*_seed* --output_dir "$runs/frontier/compare"
