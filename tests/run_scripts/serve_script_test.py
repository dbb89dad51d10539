"""`run_scripts/serve.sh` starts each kind of server with settings that it can read."""

import os
import pathlib
import subprocess

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

SCRIPT = pathlib.Path(__file__).parents[2] / "run_scripts" / "serve.sh"


@pytest.fixture(name="serve")
def fixture_serve(tmp_path):
    """Runs the script with programs of these names on PATH, which print how they were called."""
    for name in ("mnist/1", "b"):
        (tmp_path / "models" / name).mkdir(parents=True)

    def call(*words, programs=()):
        path = tmp_path / "bin"
        path.mkdir(exist_ok=True)
        for name in programs:
            (path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
            (path / name).chmod(0o755)
        environment = {"PATH": f"{path}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"),
                       "DATALENS_RUNS": str(tmp_path / "runs"), "DATALENS_REST_PORT": "18501",
                       "DATALENS_VENV": str(tmp_path / "venv")}
        return subprocess.run(["bash", SCRIPT, *words], cwd=tmp_path / "models", env=environment, capture_output=True,
                              text=True, check=False)
    return call


def models_of(tmp_path):
    text = (tmp_path / "runs" / ".serving_18501" / "models.config").read_text()
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    assert all(model.model_version_policy.HasField("all") for model in config.model_config_list.config)
    return {model.name: model.base_path for model in config.model_config_list.config}


def test_an_installed_server(serve, tmp_path):
    done = serve("mnist", "other=b", programs=["tensorflow_model_server", "docker"])
    assert done.returncode == 0, done.stderr
    name, *flags = done.stdout.split()
    assert name == "tensorflow_model_server" and {"--port=8500", "--rest_api_port=18501"} < set(flags)
    assert "--enable_batching" not in flags
    for flag in flags:
        if flag.endswith(".config"):
            assert pathlib.Path(flag.partition("=")[2]).is_file()
    assert models_of(tmp_path) == {"mnist": f"{tmp_path}/models/mnist", "other": f"{tmp_path}/models/b"}


def test_docker(serve, tmp_path):
    done = serve("--batching", "mnist", "other=b", programs=["docker"])
    assert done.stdout.startswith("docker run --rm -p 127.0.0.1:8500:8500 -p 127.0.0.1:18501:8501"), done.stderr
    assert f"source={tmp_path}/models/b,target=/models/other,readonly" in done.stdout
    assert "--enable_batching --batching_parameters_file=/settings/batching.config" in done.stdout
    assert models_of(tmp_path) == {"mnist": "/models/mnist", "other": "/models/other"}


def test_the_packages_own_server_is_installed_once(serve, tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    first, second = serve("mnist").stdout.splitlines(), serve("mnist").stdout.splitlines()
    assert first[0].startswith("-m pip install") and first[1:] == second
    assert second == [f"-m datalens_tf serve --port 18501 --grpc_port 8500 mnist={tmp_path}/models/mnist"]
    (tmp_path / "venv" / ".datalens_installed_serving").rename(tmp_path / "venv" / ".datalens_installed_test")
    assert serve("mnist").stdout.splitlines() == second  # With more than is needed.


@pytest.mark.parametrize("words, message", [([], "expected at least one folder"), (["none"], "none is no folder")])
def test_nothing_to_serve(serve, words, message):
    done = serve(*words, programs=["docker"])
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""
