#!/usr/bin/env bash
# Installs the project with what its tests need, and runs the quick tests. Arguments are passed to pytest: `-m slow`
# runs the slow tests.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install test
cd "$project"
"$venv/bin/python" -m pytest tests --numprocesses 2 --dist worksteal "$@"
