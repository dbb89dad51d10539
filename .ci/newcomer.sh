#!/usr/bin/env bash
# newcomer.sh FOLDER: runs the commands of README's section "Serve it, use it" in a clone, as they stand there.
set -euo pipefail
cd "$1"
sed -n '/^## Serve it, use it/,/^## From Python/p' README.md | sed -n 's/^    //p; /^$/p' >newcomer_commands
# Stopping at the first failure.
bash -ec "trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT
$(cat newcomer_commands)"
