"""The command line: flags become settings, settings become one call.

`EXIT_STATUSES` says how a command may end; where it is not 0, one line on stderr says why. Modules that load TensorFlow
are imported by the commands that need them.
"""

import argparse
import contextlib
import logging
import os
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence

from absl import flags
from absl import logging as absl_logging
from absl.flags import argparse_flags

from datalens_tf import __version__
from datalens_tf.cli import classify, evaluation, generators, pate, plan, privacy, training, verify
from datalens_tf.errors import DataLensError, InterruptionWarning, InvalidArgumentError, PrivacyWarning
from datalens_tf.settings import check_magnitudes

EXIT_STATUSES = {
    0: "done",
    1: "something failed that other flags may not mend: a server or another process did not answer, training "
       "diverged, or it is a bug (an internal error)",
    2: "the command line, the data or a file is not what it must be, does not fit in memory or cannot be written; or "
       "the audit caught a mechanism",
    3: "the budget pays for no step",
    130: "interrupted; the state of a run is saved",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line, without the program's name (default: this process'), and returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in argv  # Known before parsing, which may fail.
    # Both are read when TensorFlow is first imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if debug else "3")
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:  # Not on every system.
        # With a single thread for operations a function that waits for its data can wait for ever.
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
    try:
        try:
            args = _parser().parse_args(argv)
        except ValueError as error:  # of a flag that absl defines
            raise InvalidArgumentError(str(error)) from error
        if not debug:
            logging.getLogger("tensorflow").setLevel(logging.ERROR)
            absl_logging.set_verbosity(absl_logging.ERROR)
        check_magnitudes(vars(args))
        with _warnings_in_one_line():
            args.command(args)
        return 0
    except BrokenPipeError:  # The reader of our output, `head` for example, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the one place where all errors end)
        if debug:
            traceback.print_exception(error)
        status, line = _verdict(error)
        print(f"datalens: {' '.join(line.split())}", file=sys.stderr)
        return status


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Shows warnings of ours on stderr as errors are: without a place in the code."""
    with warnings.catch_warnings():
        others, ours = warnings.showwarning, (PrivacyWarning, InterruptionWarning)

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


class _Parser(argparse_flags.ArgumentParser):
    """Reports mistakes in one line, without the usage."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **kwargs)
        self.add_argument("--debug", action="store_true", help="show tracebacks and TensorFlow's own messages")

    def error(self, message: str) -> typing.NoReturn:
        raise InvalidArgumentError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(prog="datalens", description="Differentially private image generators.",
                     epilog="Exit status: " + "; ".join(f"{status} {text}" for status, text in EXIT_STATUSES.items())
                     + ".")
    parser.add_argument("--version", action="version", version=f"datalens {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, function: Callable, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        sub.set_defaults(command=function)
        return sub

    for module in (training, generators, evaluation, verify, privacy, plan, classify, pate):
        module.add_commands(command)
    return parser
