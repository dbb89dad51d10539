"""`datalens serve`: generators for whoever may reach a port."""

from __future__ import annotations

import argparse
import os
import pathlib

from etils import epy

from datalens_tf import _validate
from datalens_tf.cli import common
from datalens_tf.cli.parser import Command, Parser
from datalens_tf.errors import InvalidArgumentError

with epy.lazy_imports():
    from datalens_tf.serving import server

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("folders", nargs="+", metavar="[NAME=]RUN_OR_EXPORT",
                        help="run folders, or folders of versions that `export` wrote; each is served by the name that "
                             "is given, or by its folder's")
    parser.add_argument("--port", type=int, default=8501, help="of REST (default: 8501); 0 for a free one")
    parser.add_argument("--grpc_port", type=int, default=8500, help="of gRPC (default: 8500); 0 for a free one")
    parser.add_argument("--host", default="127.0.0.1",
                        help="address to listen at (default: 127.0.0.1, for this machine alone); others, 0.0.0.0 for "
                             "all, need --token_file")
    parser.add_argument("--server_names", default="", metavar="NAME,...",
                        help="names by which others call this machine; requests to any other name are refused")
    parser.add_argument("--token_file", default=None, metavar="FILE",
                        help="a text that every request must bring: `Authorization: Bearer TEXT`")


def _serve(args: argparse.Namespace) -> None:
    """`datalens serve`."""
    for name in ("port", "grpc_port"):
        _validate.integer(name, getattr(args, name), at_least=0, at_most=65535)
    token = None if args.token_file is None else common.read_token(args.token_file)
    if args.host not in _LOOPBACK and token is None:
        raise InvalidArgumentError(f"Expected --token_file with --host={args.host}: others can reach this address. Put "
                                   "a long random text into a file, and give its name.")
    folders: dict[str, pathlib.Path] = {}
    for word in args.folders:
        name, folder = _model(word)
        _validate.require(name not in folders, "name", name, "to be given once: put NAME= before a folder")
        folders[name] = folder
    _validate.installed("Serving needs", "serving", ("starlette", "uvicorn", "prometheus_client"))
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # Errors are told in our own words.
    models = server.Models(folders)
    served = server.Server(models, host=args.host, port=args.port, grpc_port=args.grpc_port, token=token,
                           names=[name.strip() for name in args.server_names.split(",") if name.strip()])
    print(f"serving {', '.join(models.names)}: REST http://{args.host}:{served.port}, gRPC "
          f"{args.host}:{served.grpc_port}", flush=True)
    served.serve_until_asked()


def _model(word: str) -> tuple[str, pathlib.Path]:
    """Name of a model, and the folder of its versions."""
    name, given, place = word.partition("=")
    folder = pathlib.Path(place if given else word)
    name = name if given else os.path.basename(os.path.abspath(folder))
    _validate.require(name != "" and not set(name) & set("/:{}?#%\"\\") and name.isprintable(), "name", name,
                      "to have none of the characters / : { } ? # % \" \\")
    if (folder / "config.json").is_file():
        folder = common.load_run(folder).folder.generator
    return name, folder


COMMANDS = {"serve": Command(_add_arguments, _serve)}
