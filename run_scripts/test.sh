#!/usr/bin/env bash
# Installs the project with what its tests need and runs them; arguments are passed to pytest.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install test
cd "$project"
# Two at a time: the tests of actors and of killed processes mostly wait.
"$venv/bin/python" -m pytest tests --numprocesses 2 --dist worksteal "$@"
