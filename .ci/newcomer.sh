#!/usr/bin/env bash
# newcomer.sh FOLDER: runs the blocks of the tutorial in a clone with an environment in .venv, as they stand there.
set -euo pipefail
cd "$1"
export PATH="$PWD/.venv/bin:$PATH"
awk '/^```bash$/ {shell = 1; next}
     /^```python$/ {python = 1; print "python - <<\047END\047"; next}
     /^```$/ {if (python) print "END"; shell = python = 0; next}
     shell || python' docs/tutorial/first_generator.md >newcomer_commands
# Stopping at the first failure.
bash -euo pipefail -c "trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT
$(cat newcomer_commands)"
