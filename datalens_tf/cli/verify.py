"""`datalens verify`: whether a run, an export or a converted file is what it says it is."""

import argparse
import pathlib
from collections.abc import Callable

from datalens_tf.errors import CheckpointError

_MARKS = {True: "ok", False: "FAILED", None: "not known"}


def add_commands(command: Callable) -> None:
    """Adds the command's parser, which `command` makes from a name, a function and a text."""
    verify = command("verify", _verify, "check that a run, an export or a converted file is what it says it is")
    verify.add_argument("path", metavar="PATH",
                        help="a run folder, a released checkpoint, a SavedModel or the folder of its versions, or a "
                             ".onnx, .tflite or .html file that `datalens convert` wrote")


def _verify(args: argparse.Namespace) -> None:
    """`datalens verify`."""
    from datalens_tf.auditing.verification import CANNOT_KNOW, verify

    path = pathlib.Path(args.path)
    if not path.exists():
        raise CheckpointError(f"There is no {path}: name a run folder, an export or a converted file.")
    checks = verify(path)
    for check in checks:
        print(f"{_MARKS[check.passed]:<9} {check.text}")
    print("Nobody can know from outside:", *(f"- {text}" for text in CANNOT_KNOW), sep="\n")
    failed = sum(check.passed is False for check in checks)
    if failed:
        raise CheckpointError(f"{failed} of {len(checks)} checks failed: {path} was altered, damaged or mixed up with "
                              "another run. Get it again from whoever trained it.")
