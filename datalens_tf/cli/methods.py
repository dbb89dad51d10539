"""`datalens methods`: the methods that `train` knows, and when to choose which."""

from __future__ import annotations

import argparse
import dataclasses
import json

from datalens_tf.cli.parser import Command, Parser
from datalens_tf.methods import registry


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", default=False, help="print JSON instead of a table")


def _methods(args: argparse.Namespace) -> None:
    """Prints a row per method."""
    found = registry.table()
    print(json.dumps([dataclasses.asdict(method) for method in found], indent=2) if args.json else found)


COMMANDS = {"methods": Command(_add_arguments, _methods)}
