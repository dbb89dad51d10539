#!/usr/bin/env bash
# release.sh RUN_FOLDER NAME: copies what may leave a finished run to checkpoints/NAME. Nothing else is looked at.
# metrics.json and report.html are there because the real data is public: epsilon does not cover them.
set -euo pipefail
run="${1:?run folder}" target="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/checkpoints/${2:?name}"
mkdir "$target" "$target/generator"
cp "$run"/{config.json,ledger.jsonl,privacy.json,privacy.txt,metrics.json,report.html,samples.png} "$target"
cp -r "$run/generator/1" "$target/generator/1"
# Of every file, so that `datalens verify` notices a change anywhere.
(cd "$target" && find . -type f ! -path ./SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS)
echo "$target: add it to checkpoints/README.md"
