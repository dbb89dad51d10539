#!/usr/bin/env bash
# table9.sh [FLAGS]: Table 9 of the DataLens paper, TopAgg by norm and by dimensions: trains what is missing in
# runs/table9, and writes table9.md and table9.csv there. The same command again continues. FLAGS are those of
# tables8to10.py beside this file: `--epsilons 0.2 1`, `--ks 0.8`, `--seeds 1` and others.
source "$(dirname "${BASH_SOURCE[0]}")/../_common.sh"
install
"$venv/bin/python" "$project/run_scripts/reproduce/tables8to10.py" --table 9 --runs_dir "$runs/table9" "$@"
