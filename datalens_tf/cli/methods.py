"""`datalens methods`: the methods that `train` knows, and when to choose which."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import textwrap

from datalens_tf.cli.parser import Command, Parser, help_width
from datalens_tf.methods import registry


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", default=False, help="print JSON instead of a table")


def _methods(args: argparse.Namespace) -> None:
    """Prints a row per method."""
    found = registry.methods().values()
    if args.json:
        print(json.dumps([dataclasses.asdict(method) for method in found], indent=2))
        return
    name_width = 2 + max(len(method.name) for method in found)
    width = (help_width() - name_width - 2) // 2
    rows = [("METHOD", "CHOOSE THIS WHEN", "WHAT IT IS"),
            *((method.name, method.choose_when, method.summary.removesuffix(".")) for method in found)]
    for name, *texts in rows:
        when, what = (textwrap.wrap(text, width) for text in texts)
        for left, middle, right in itertools.zip_longest([name], when, what, fillvalue=""):
            print(f"{left:<{name_width}}{middle:<{width + 2}}{right}".rstrip())


COMMANDS = {"methods": Command(_add_arguments, _methods)}
