"""`datalens share`: a copy of a run without anything private."""

from __future__ import annotations

import argparse
import pathlib

from etils import epy

from datalens_tf import _checksums
from datalens_tf.cli import running
from datalens_tf.cli.parser import Command, Parser
from datalens_tf.errors import CheckpointError

with epy.lazy_imports():
    from datalens_tf import image_generator
    from datalens_tf.accounting import wording
    from datalens_tf.auditing import verification


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="a finished run of a generator, which is verified")
    parser.add_argument("--output_dir", required=True, metavar="DIR",
                        help="a new folder, which gets the generator, samples, settings, ledger and statement")


def _share(args: argparse.Namespace) -> None:
    """`datalens share`."""
    run = pathlib.Path(args.run)
    running.check_finished(run)
    if not (run / "config.json").is_file():
        raise CheckpointError(f"Expected {run} to be a run folder: only one says which of its files it wrote.")
    if running.is_of_a_classifier(run):
        raise CheckpointError(f"Expected {run} to be a run of a generator. Of a classifier's, share all but "
                              f"{run / 'private'} and what it did not write.")
    failed = [check.text for check in verification.verify(run) if check.passed is False]
    if failed:
        raise CheckpointError(f"{run} was altered or damaged: {failed[0].rstrip('.')}. Nothing was copied.")
    if not (run / _checksums.NAME).is_file():
        raise CheckpointError(f"{run} does not say which files it wrote, as older versions did not: "
                              f"{running.resume_command(run)} makes it do so, at no cost.")
    generator = image_generator.load(run)
    statement = generator.privacy
    if not statement["private"]:
        raise CheckpointError(f"{run} is NOT PRIVATE: nothing of it may be shared but with those who may see the "
                              "records.")
    folder = generator.save(args.output_dir)
    print(f"{folder} may be shared {wording.audience(statement)}: read {folder / 'privacy.txt'} first, which says "
          "what is protected, and what is not")


COMMANDS = {"share": Command(_add_arguments, _share)}
