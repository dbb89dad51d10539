#!/usr/bin/env bash
# release.sh RUN_FOLDER NAME: copies the files that may leave a finished run to checkpoints/NAME; it looks at no others.
# Only for real data that is public: metrics.json and report.html are of the evaluation, which epsilon does not cover.
set -euo pipefail
run="${1:?run folder}" target="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/checkpoints/${2:?name}"
mkdir "$target" "$target/generator"
cp "$run"/{config.json,ledger.jsonl,privacy.json,privacy.txt,samples.png,private/evaluation/{metrics.json,report.html}} "$target"
cp -r "$run/generator/1" "$target/generator/1"
# Checksums of every file, so that `datalens verify` notices a change anywhere.
(cd "$target" && find . -type f ! -path ./SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS)
echo "$target: add it to checkpoints/README.md"
