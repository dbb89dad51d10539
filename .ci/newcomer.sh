#!/usr/bin/env bash
# newcomer.sh FOLDER [RUN]: runs the blocks of the tutorial in a clone with an environment in .venv, as they stand there.
# The quickstart's RUN stands in for the first one, where it is given: it is what that would make.
set -euo pipefail
cd "$1"
export PATH="$PWD/.venv/bin:$PATH"
awk '/^```bash$/ {shell = 1; next}
     /^```python$/ {python = 1; print "python - <<\047END\047"; next}
     /^```$/ {if (python) print "END"; shell = python = 0; next}
     shell || python' docs/tutorial/first_generator.md >newcomer_commands
if [[ -n "${2:-}" ]]; then
  flags="--preset digits --epsilon 10"
  grep -qx "run quickstart $flags" run_scripts/quickstart.sh
  [[ "$(head -n 1 newcomer_commands)" == "datalens train $flags --output_dir runs/first" ]]
  sed -i 1d newcomer_commands
  mkdir -p runs
  cp -r "$2" runs/first
fi
# Stopping at the first failure.
bash -euo pipefail -c "trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT
$(cat newcomer_commands)"
