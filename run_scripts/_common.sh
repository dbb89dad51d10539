# Sourced by the other scripts. Works from any folder; nothing here is specific to one data set.
#
#   DATALENS_VENV  the virtual environment (default: .venv in the project)
#   DATALENS_RUNS  where run folders are written (default: runs in the project)
#   PYTHON         what to make the environment with (default: python3.11)

set -euo pipefail

project="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="${DATALENS_VENV:-$project/.venv}"
runs="${DATALENS_RUNS:-$project/runs}"

# install [EXTRA]: makes the environment if it is missing. Installs the project into it unless that was done since
# pyproject.toml last changed: with the same EXTRA, or with `test`, which has every extra. Without an EXTRA, any
# installation will do. The installation is editable, so the code that runs is the code that is here.
install() {
  local extra="${1:-}" stamp newest other
  stamp="$venv/.datalens_installed${extra:+_$extra}"
  if [[ ! -x "$venv/bin/python" ]]; then
    echo "Making a virtual environment in $venv" >&2
    "${PYTHON:-python3.11}" -m venv "$venv"
  fi
  newest="$stamp"
  for other in "$venv"/.datalens_installed_*; do
    if [[ (-z "$extra" || "$other" == *_test) && "$other" -nt "$newest" ]]; then newest="$other"; fi
  done
  if [[ ! -f "$newest" || "$project/pyproject.toml" -nt "$newest" ]]; then
    echo "Installing into $venv" >&2
    "$venv/bin/python" -m pip install --quiet --editable "$project${extra:+[$extra]}"
    touch "$stamp"
  fi
}

datalens() {
  "$venv/bin/python" -m datalens_tf "$@"
}

# run NAME FLAGS...: trains in runs/NAME, or continues there; then evaluates, with the flags in the array
# evaluate_flags, and exports. The same command continues whatever is not finished.
evaluate_flags=()
run() {
  local folder="$runs/$1"
  shift
  if [[ -f "$folder/ledger.jsonl" || -f "$folder/private/data.json" ]]; then
    datalens train --resume --output_dir "$folder" "$@"
  else
    datalens train --output_dir "$folder" "$@"
  fi
  datalens evaluate --samples "$folder" "${evaluate_flags[@]}"
  if [[ ! -d "$folder/serving/1" ]]; then
    datalens export --run_dir "$folder" --output_dir "$folder/serving"
  fi
}
