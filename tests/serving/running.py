"""A server in this process, with limits that a test can wait for."""

import contextlib
import threading
import time

from datalens_tf.serving.server import Limits, Models, Server


@contextlib.contextmanager
def running(folders, *, models=None, token=None, names=(), **limits):
    """A server on free ports: `port` and `grpc_port`."""
    models = models or Models(folders, Limits(**{"seconds": 1.0, "poll_seconds": 0.1} | limits))
    server = Server(models, port=0, grpc_port=0, token=token, names=names)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
