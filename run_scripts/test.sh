#!/usr/bin/env bash
# Installs the project with what its tests need and runs them; arguments are passed to pytest.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install test
cd "$project"
"$venv/bin/python" -m pytest tests "$@"
