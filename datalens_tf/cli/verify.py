"""`datalens verify`: whether a run, an export or a converted file is what it says it is."""

from __future__ import annotations

import argparse
import pathlib

from etils import epy

from datalens_tf.cli import running
from datalens_tf.cli.parser import Command, Parser
from datalens_tf.errors import CheckpointError

with epy.lazy_imports():
    from datalens_tf.auditing import verification

_MARKS = {True: "ok", False: "FAILED", None: "not known"}


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("path", metavar="PATH",
                        help="a run folder, a released checkpoint, a SavedModel or the folder of its versions, or a "
                             ".onnx, .tflite or .html file that `datalens convert` wrote")


def _verify(args: argparse.Namespace) -> None:
    """`datalens verify`."""
    path = pathlib.Path(args.path)
    if not path.exists():
        raise CheckpointError(f"There is no {path}: name a run folder, an export or a converted file.")
    running.check_finished(path)
    checks = verification.verify(path)
    for check in checks:
        print(f"{_MARKS[check.passed]:<9} {check.text}")
    if (path / "private").exists():
        print(f"{_MARKS[None]:<9} private: it must stay, and was not looked at; `datalens share` leaves it out")
    print("Nobody can know from outside:", *(f"- {text}" for text in verification.CANNOT_KNOW), sep="\n")
    failed = sum(check.passed is False for check in checks)
    if failed:
        raise CheckpointError(f"{failed} of {len(checks)} checks failed: {path} was altered, damaged or mixed up with "
                              "another run. Get it again from whoever trained it.")


COMMANDS = {"verify": Command(_add_arguments, _verify)}
