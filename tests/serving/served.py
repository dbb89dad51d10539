"""A server in a process of its own, for tests: the real one where it is installed, else this package's."""

import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import requests


class Served:
    """Serves `folder` as the model `tiny`; `start` and `kill` can be called again and again, on the same ports.

    Further flags are for this package's server.
    """

    def __init__(self, folder: pathlib.Path, *flags: str):
        self.ports = free_port(), free_port()
        self.rest, self.grpc = f"http://localhost:{self.ports[1]}", f"grpc://localhost:{self.ports[0]}"
        self.is_real = shutil.which("tensorflow_model_server") is not None
        self._command = (
            ["tensorflow_model_server", f"--port={self.ports[0]}", f"--rest_api_port={self.ports[1]}",
             "--model_name=tiny", f"--model_base_path={folder}"] if self.is_real else
            [sys.executable, "-m", "datalens_tf", "serve", f"tiny={folder}", f"--grpc_port={self.ports[0]}",
             f"--port={self.ports[1]}", *flags])
        self.process = None

    def start(self) -> "Served":
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            with contextlib.suppress(requests.RequestException):
                if requests.get(f"{self.rest}/v1/models/tiny", timeout=5).status_code == 200:
                    return self
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def resident_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]
