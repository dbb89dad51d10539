#!/usr/bin/env bash
# Installs the project with what its tests need and runs the quick ones; arguments are passed to pytest, `-m slow` for
# the slow ones.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install test
cd "$project"
"$venv/bin/python" -m pytest tests --numprocesses 2 --dist worksteal "$@"
