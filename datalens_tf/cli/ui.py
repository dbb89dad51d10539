"""`datalens ui`: the images of a run, class by class, in a browser on this machine."""

from __future__ import annotations

import argparse
import pathlib
import secrets
import signal
import socket

from etils import epy

from datalens_tf import _validate
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser
from datalens_tf.errors import InvalidArgumentError

with epy.lazy_imports():
    from datalens_tf.accounting import verification
    from datalens_tf.serving import export as exports
    from datalens_tf.serving import ui
    from datalens_tf.training import results

_HOST = "127.0.0.1"


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("model", metavar="RUN_OR_EXPORT", help="a run folder, or a SavedModel that `export` wrote")
    parser.add_argument("--port", type=int, default=8502, help="of this machine (default: 8502); 0 for a free one")


def _ui(args: argparse.Namespace) -> None:
    """Answers until it is interrupted."""
    _validate.integer("port", args.port, at_least=0, at_most=65535)
    running.check_finished(pathlib.Path(args.model))
    _validate.installed("The pages need", "serving", ("jinja2", "starlette", "uvicorn"))
    import uvicorn

    drawers = common.drawers(args.model)
    folder, token = pathlib.Path(args.model), secrets.token_urlsafe(24)
    is_run = (folder / "config.json").is_file()
    statement = verification.run_statement(folder) if is_run else verification.export_statement(
        exports.version_folder(folder))
    found = {"report": folder / "report.html", "private_report": results.results_folder(folder) / "report.html"}
    pages = ui.application(drawers.training, drawers.looking, drawers.class_names, statement, {
        name: path for name, path in found.items() if is_run and path.is_file()}, token=token)
    try:
        listening = socket.create_server((_HOST, args.port))
    except OSError as error:
        raise InvalidArgumentError(f"Cannot listen on --port={args.port}: {error.strerror}. Choose another.") from error
    print(f"http://{_HOST}:{listening.getsockname()[1]}/?token={token}\nfor a browser on this machine; Ctrl-C ends it",
          flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # uvicorn's own handlers end it, and call these when they are done.
    uvicorn.Server(uvicorn.Config(pages, lifespan="off", log_level="error", access_log=False, server_header=False,
                                  proxy_headers=False)).run([listening])


COMMANDS = {"ui": Command(_add_arguments, _ui)}
