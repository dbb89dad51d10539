"""The command line: flags become settings, settings become one call.

`EXIT_STATUSES` says how a command may end. If the status is not 0, one line on stderr says why. Modules that take long
to import are imported lazily, by the commands that use them.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence

from absl import flags
from absl import logging as absl_logging
from etils import epy

from datalens_tf import __version__, _validate
from datalens_tf._text import terminal_width
from datalens_tf.cli.parser import Parser, table
from datalens_tf.errors import DataLensError, DataWarning, InterruptionWarning, PrivacyWarning
from datalens_tf.settings import check_magnitudes

with epy.lazy_imports():
    from datalens_tf.cli import (
        advise,
        audit,
        check,
        classify,
        doctor,
        evaluation,
        generators,
        methods,
        pate,
        plan,
        privacy,
        serve,
        share,
        training,
        ui,
        verify,
    )
    from datalens_tf.data import registry as data_registry
    from datalens_tf.methods import registry as method_registry

# For each command, the module that has it in its `COMMANDS`, and what the command does.
COMMANDS = {
    "advise": (advise, "say what to expect of a budget for so many records, without reading any"),
    "check": (check, "say what would be trained on your data, and how, before anything runs"),
    "train": (training, "train a generator and write a run folder"),
    "sample": (generators, "draw synthetic images from a run or an exported generator"),
    "evaluate": (evaluation, "measure on real records how good synthetic images are"),
    "compare": (evaluation, "put evaluated runs side by side: a table and plots"),
    "share": (share, "copy what may be shared of a run into a new folder"),
    "export": (generators, "copy a run's generator to a folder that TensorFlow Serving reads"),
    "convert": (generators, "make a generator run without TensorFlow: ONNX, TensorFlow Lite, a web page"),
    "serve": (serve, "answer requests for images, by REST and gRPC as TensorFlow Serving does"),
    "ui": (ui, "show a run's images by class, and the guarantee, in a browser on this machine"),
    "verify": (verify, "check that a run, an export or a converted file is what it says it is"),
    "methods": (methods, "list the methods of train, and when to choose which"),
    "plan": (plan, "recommend top_k, vote_threshold and noise for a budget"),
    "privacy": (privacy, "account for privacy without training"),
    "audit": (audit, "attack a run's method, and bound its epsilon from below"),
    "classify": (classify, "train a differentially private classifier"),
    "pate-classify": (pate, "train a classifier by PATE: teachers on sensitive records label public images"),
    "doctor": (doctor, "say whether this installation and this machine can train"),
}

EXIT_STATUSES = {
    0: "done",
    1: "failed: a server did not answer, training diverged, doctor found what is broken, or a bug",
    2: "wrong flags, data or files, too little memory, or the audit caught a mechanism",
    3: "the budget pays for no step",
    130: "interrupted; the state of a run is saved",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line, without the program's name (default: this process'), and returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in argv  # Known before parsing, which may fail.
    # TensorFlow reads both variables when it is first imported.
    if debug:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:  # Not on every system.
        # With a single thread for operations, a function that waits for its data can wait for ever.
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
    try:
        run, args = parse(argv)
        if not debug:
            logging.getLogger("tensorflow").setLevel(logging.ERROR)
            absl_logging.set_verbosity(absl_logging.ERROR)
        check_magnitudes(vars(args))
        with _warnings_in_one_line():
            run(args)
        return 0
    except BrokenPipeError:  # The reader of our output, `head` for example, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the one place where all errors end)
        if debug:
            traceback.print_exception(error)
        status, line = _verdict(error)
        print(f"datalens: {' '.join(line.splitlines())}", file=sys.stderr)
        return status


def parse(argv: Sequence[str]) -> tuple[Callable[[argparse.Namespace], None], argparse.Namespace]:
    """The command that a command line names, and its flags.

    Raises:
      InvalidArgumentError: a mistake.
      SystemExit: after `--help` and `--version`.
    """
    top = Parser("datalens", "", argv)
    top.page = _overview
    top.add_argument("--version", action="version", version=f"datalens {__version__}")
    top.add_argument("name", metavar="COMMAND", help="one of the commands that `datalens --help` lists")
    top.add_argument("words", nargs=argparse.REMAINDER, default=[])
    found = top.parse()
    if found.name not in COMMANDS:
        top.error(f"Unknown command {found.name!r:.200}.{_validate.did_you_mean(found.name, COMMANDS)}")
    parser = command_parser(found.name, found.words)
    return COMMANDS[found.name][0].COMMANDS[found.name].run, parser.parse()


def command_parser(name: str, words: Sequence[str]) -> Parser:
    """The parser of a command; which flags `train` has depends on the method among the words."""
    module, text = COMMANDS[name]
    parser = Parser(f"datalens {name}", f"{text[0].upper()}{text[1:]}.", words)
    module.COMMANDS[name].arguments(parser)
    return parser


def _overview() -> str:
    """The help of the whole command line, for a first reader."""
    def listed(names):
        return textwrap.fill(", ".join(names), terminal_width(), initial_indent="  ", subsequent_indent="  ")

    statuses = "; ".join(f"{status} {text}" for status, text in EXIT_STATUSES.items())
    return f"""usage: datalens COMMAND [FLAG ...]

Differentially private image generators: train, state the guarantee, sample, evaluate, share.

A first run:
  datalens train --dataset digits --epsilon 10 --output_dir runs/digits
  datalens sample --model runs/digits --num_samples 100 --output samples.npz
  datalens evaluate --samples runs/digits --quick

Commands (datalens COMMAND --help says more):
{table([(name, text) for name, (_, text) in COMMANDS.items()])}

Methods of train, by --method (datalens methods says when to choose which):
{listed(method_registry.methods())}

Data, by --dataset (datalens train --help says more):
{listed(data_registry.known_datasets())}

What most people need of train: --dataset, --epsilon (default: that of the data set's preset, else 1),
--output_dir, and --resume after an interruption. Without --method, what suits the data best is taken.

{textwrap.fill(f"Exit status: {statuses}.", terminal_width())}
"""


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Shows this package's warnings on stderr like errors: without a place in the code."""
    with warnings.catch_warnings():
        others, ours = warnings.showwarning, (PrivacyWarning, InterruptionWarning, DataWarning)

        def show(message, category, *place):
            if issubclass(category, ours):
                print(f"datalens: warning: {message}", file=sys.stderr)
            else:
                others(message, category, *place)

        for category in ours:
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield


def _verdict(error: BaseException) -> tuple[int, str]:
    """Exit status and line of an error."""
    match error:
        case DataLensError():
            return error.exit_code, str(error)
        case OSError() if error.filename is not None:  # A name that is too long, for example.
            return 2, f"Cannot use {error.filename!r:.200}: {error.strerror}."
        case flags.Error():  # of --flagfile
            return 2, str(error)
        case _ if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's.
            return 2, "This needs more memory than there is: use smaller settings or less data."
        case KeyboardInterrupt():
            return 130, "Interrupted. Of a training run nothing released is lost: `train --resume` continues it."
        case _:
            return 1, f"internal error: {type(error).__name__}: {error}. Run it with --debug to see where."
