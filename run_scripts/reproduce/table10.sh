#!/usr/bin/env bash
# table10.sh [FLAGS]: Table 10 of the DataLens paper, compression and noise, each on and off: trains what is missing in
# runs/table10, and writes table10.md and table10.csv there. The same command again continues. FLAGS are those of
# tables8to10.py beside this file: `--epsilons 0.2 1`, `--ks 0.8`, `--seeds 1` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install
"$venv/bin/python" "$project/run_scripts/reproduce/tables8to10.py" --table 10 --runs_dir "$runs/table10" "$@"
