"""`datalens serve`: what a user types, and mistakes that end in one line."""

import signal
import socket
import subprocess
import sys

import pytest
import requests

from tests.cli.commands import refused


def test_a_run_is_served_on_this_machine_alone_and_ends_when_it_is_asked_to(finished):
    process = subprocess.Popen([sys.executable, "-m", "datalens_tf", "serve", f"digits={finished}", "--port=0",
                                "--grpc_port=0"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("serving digits: REST http://127.0.0.1:")
        address = line.split()[3].rstrip(",")
        answer = requests.post(f"{address}/v1/models/digits:predict", json={"inputs": [3]}, timeout=60)
        assert len(answer.json()["outputs"][0]) == 8
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


@pytest.mark.parametrize("words, texts", [
    (["--host=0.0.0.0"], ["--token_file", "0.0.0.0"]), (["--port=70000"], ["port=70000"]),
    (["--token_file=none"], ["--token_file=none"])])
def test_what_is_refused(finished, datalens, words, texts):
    refused(datalens("serve", finished, *words), *texts)


def test_models_that_cannot_be_served(finished, datalens, tmp_path):
    refused(datalens("serve", tmp_path / "none"), "Found no version of the model none")
    refused(datalens("serve", f"a/b={finished}"), "name='a/b'")
    refused(datalens("serve", f"a={finished}", f"a={finished}"), "to be given once")
    (tmp_path / "token").write_text("short\n")
    refused(datalens("serve", finished, f"--token_file={tmp_path / 'token'}"), "at least 16")


def test_a_port_that_is_taken(finished, datalens):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(datalens("serve", finished, f"--port={taken.getsockname()[1]}", "--grpc_port=0"), "Choose another port")


def test_without_the_extra_one_line_says_what_to_install(finished, datalens, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    refused(datalens("serve", finished), "pip install 'datalens_tf[serving]'")
