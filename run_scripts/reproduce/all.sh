#!/usr/bin/env bash
# all.sh [FLAGS]: every table of the papers, from one list of runs (paper_tables.py). Says what the runs will take, then
# trains and evaluates them one at a time, in the folder `reproduce` of runs/ or of DATALENS_RUNS. Repeat the
# command to continue after any stop. FLAGS are those of all.py beside this file: `--cost` only says what the runs will
# take, `--only 'dp_gan_mnist_*'` names runs, `--max_minutes 60` stops trainings that take longer; `--runs_dir RUNS`.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install eval
"$venv/bin/python" "$project/run_scripts/reproduce/all.py" --runs_dir "$runs/reproduce" "$@"
