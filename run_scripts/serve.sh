#!/usr/bin/env bash
# serve.sh [--batching] [NAME=]FOLDER...: serves every version of generators that `datalens export` wrote (FOLDER/1,
# FOLDER/2 and so on), under NAME or the folder's name: REST on port 8501, gRPC on 8500, counts for Prometheus.
#
# Serves with `tensorflow_model_server` if it is installed, else with Docker's tensorflow/serving if Docker runs, else
# with `datalens serve`.
#
#   --batching     joins requests that wait at the same time; the signature `generate` is refused then
#   DATALENS_REST_PORT, DATALENS_GRPC_PORT   other ports
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
rest_port="${DATALENS_REST_PORT:-8501}" grpc_port="${DATALENS_GRPC_PORT:-8500}"
batching=""
if [[ "${1:-}" == --batching ]]; then
  batching=1
  shift
fi
if [[ $# == 0 ]]; then
  echo "serve.sh: expected at least one folder that \`datalens export\` wrote, for example runs/quickstart/serving" >&2
  exit 2
fi

models=()
folders=()
for argument in "$@"; do
  folder="${argument#*=}"
  if [[ ! -d "$folder" ]]; then
    echo "serve.sh: $folder is no folder; expected one that \`datalens export\` wrote" >&2
    exit 2
  fi
  folder="$(cd "$folder" && pwd)"
  [[ "$argument" == *=* ]] && models+=("${argument%%=*}") || models+=("$(basename "$folder")")
  folders+=("$folder")
done

settings="$runs/.serving_$rest_port"
mkdir -p "$settings"
cp "$project"/run_scripts/serving/*.config "$settings"

# list_models BASE: prints the models as a ModelServerConfig; their folders are BASE/NAME where BASE is given.
list_models() {
  local base="$1" path
  echo "model_config_list {"
  for index in "${!models[@]}"; do
    path="${base:+$base/${models[$index]}}"
    echo "  config { name: \"${models[$index]}\" base_path: \"${path:-${folders[$index]}}\""
    echo "           model_platform: \"tensorflow\" model_version_policy { all {} } }"
  done
  echo "}"
}

# flags GRPC_PORT REST_PORT SETTINGS: prints the flags of the server.
flags() {
  echo "--port=$1" "--rest_api_port=$2" "--model_config_file=$3/models.config" \
    "--monitoring_config_file=$3/monitoring.config" \
    ${batching:+--enable_batching --batching_parameters_file="$3/batching.config"}
}

if command -v tensorflow_model_server >/dev/null; then
  list_models "" >"$settings/models.config"
  # shellcheck disable=SC2046
  exec tensorflow_model_server $(flags "$grpc_port" "$rest_port" "$settings")
elif command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  list_models /models >"$settings/models.config"
  mounts=(--mount "type=bind,source=$settings,target=/settings,readonly")
  for index in "${!models[@]}"; do
    mounts+=(--mount "type=bind,source=${folders[$index]},target=/models/${models[$index]},readonly")
  done
  # shellcheck disable=SC2046
  exec docker run --rm -p "127.0.0.1:$grpc_port:8500" -p "127.0.0.1:$rest_port:8501" "${mounts[@]}" \
    --entrypoint tensorflow_model_server tensorflow/serving:2.15.1 $(flags 8500 8501 /settings)
else
  echo "serve.sh: found neither tensorflow_model_server nor Docker; using \`datalens serve\`" >&2
  [[ -z "$batching" ]] || echo "serve.sh: which does not batch" >&2
  install serving
  words=()
  for index in "${!models[@]}"; do
    words+=("${models[$index]}=${folders[$index]}")
  done
  exec "$venv/bin/python" -m datalens_tf serve --port "$rest_port" --grpc_port "$grpc_port" "${words[@]}"
fi
