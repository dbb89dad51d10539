"""Parts that long commands share: progress, an end on request, the command that continues, and the last screen."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import signal
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from etils import epy

from datalens_tf import _files
from datalens_tf.data import registry as data_registry
from datalens_tf.errors import CheckpointError, InvalidArgumentError, TrainingInterrupted
from datalens_tf.methods import runs
from datalens_tf.training import progress as progresses

with epy.lazy_imports():
    from datalens_tf.accounting import wording

# Commands by the `method` in a run's settings; every other method is one of `train`.
_COMMANDS = {"dp_sgd_classifier": "classify", "pate_classifier": "pate-classify"}
_EVALUATION = ("matplotlib", "xgboost", "jinja2")  # of the extra `eval`


def add_progress_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say how much a command tells while it works."""
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quiet", action="store_true", default=False,
                          help="only results and errors; --verbose: all steps, --log_file FILE: there")
    how_much.add_argument("--verbose", action="store_true", default=False, help=argparse.SUPPRESS)
    parser.add_argument("--log_file", default=None, metavar="FILE", help=argparse.SUPPRESS)


@contextlib.contextmanager
def shown(args: argparse.Namespace, run_dir: pathlib.Path | None = None) -> Iterator[progresses.Progress]:
    """Progress as the flags ask for it; it begins with the stage `load`.

    Args:
      args: flags, with those of `add_progress_arguments`.
      run_dir: the run folder, in which no log file may be.

    Raises:
      InvalidArgumentError: the log file would be shared with the run.
      DataLensError: the log file cannot be written.
    """
    detail = "quiet" if args.quiet else "verbose" if args.verbose else "normal"
    with contextlib.ExitStack() as stack:
        log = None
        if args.log_file is not None:
            path = pathlib.Path(args.log_file)
            if run_dir is not None and path.resolve().is_relative_to(run_dir.resolve()):
                raise InvalidArgumentError(
                    f"Expected --log_file={args.log_file} outside of the run folder, which may be shared: how long "
                    "things take can depend on the records. Choose another place.")
            with _files.clear_os_errors(path):
                log = stack.enter_context(progresses.open_log(path))
        progress = stack.enter_context(progresses.Progress(detail=detail, log_file=log))
        progress.on_stage("load")
        yield progress


@contextlib.contextmanager
def stop_on_signals(request_stop: Callable[[], Any]) -> Iterator[None]:
    """Lets the first SIGINT or SIGTERM ask to stop after the current step, and the second stop at once."""
    received = []

    def handle(number: int, frame: types.FrameType | None) -> None:
        del frame
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        request_stop()
        # Not print: the signal may have come in the middle of a print.
        os.write(2, b"\ndatalens: stopping after this step; once more to stop at once\n")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Stopper:
    """Asks what is at work to stop; if nothing is at work, the command ends at once."""

    def __init__(self) -> None:
        self.request_stop: Callable[[], Any] | None = None

    def __call__(self) -> None:
        if self.request_stop is None:
            raise KeyboardInterrupt
        self.request_stop()


@contextlib.contextmanager
def interruptible(args: argparse.Namespace, name: str, folder: pathlib.Path) -> Iterator[Stopper]:
    """Ends a command that trains when a signal asks for it, and says which command continues it.

    Args:
      args: flags, with the `words` that the command was given.
      name: of the command.
      folder: of the run.

    Raises:
      TrainingInterrupted: a signal asked for the end.
    """
    stopper = Stopper()
    try:
        with stop_on_signals(stopper):
            yield stopper
    except (KeyboardInterrupt, TrainingInterrupted) as error:
        if runs.begun(folder):
            said = str(error).removesuffix(" Continue with --resume.") or f"Interrupted; state saved in {folder}."
            again = resume_command(folder)
        else:
            said, again = "Interrupted before anything was released or paid for.", command(name, *args.words)
        raise TrainingInterrupted(f"{said} Continue with: {again}") from error


def command(*words: Any) -> str:
    """A command line of this package, quoted for a shell, that works where this process was started."""
    program = ["datalens"] if shutil.which("datalens") else [sys.executable, "-m", "datalens_tf"]
    return shlex.join([*program, *map(str, words)])


def _method(folder: pathlib.Path) -> Any:
    """The method of a run; None where its settings cannot be read."""
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))["method"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_of_a_classifier(folder: pathlib.Path) -> bool:
    """Whether a run trained a classifier, and no generator."""
    return _method(folder) in _COMMANDS


def resume_command(folder: pathlib.Path) -> str:
    """The command that continues a run."""
    return command(_COMMANDS.get(_method(folder), "train"), "--resume", f"--output_dir={folder}")


def unfinished(folder: pathlib.Path) -> str | None:
    """Says that the training of a run folder has not ended; None for any other folder or file."""
    if not (folder / "private" / "data.json").is_file() or (folder / "privacy.json").exists():
        return None
    return f"{folder} holds no finished run: its training was interrupted. Continue with: {resume_command(folder)}"


def check_finished(folder: pathlib.Path) -> None:
    """Raises CheckpointError where a run's training has not ended."""
    if (text := unfinished(folder)) is not None:
        raise CheckpointError(text)


def last_screen(folder: pathlib.Path, place: str, statement: Mapping[str, Any], *, tested: bool = False) -> str:
    """Tells where everything of a finished run is, what may be shared with whom, and what to do next.

    Args:
      folder: of the run.
      place: of its data.
      statement: of its privacy.
      tested: whether its images were measured already, in short.
    """
    private = folder / "private"
    if statement["private"]:
        shared = (f"share     {folder} without {private}, and exports: {wording.audience(statement)}\n"
                  f"          protected is {statement['unit']}; names of classes and of the data are not\n"
                  f"keep      {private} for yourself; {private / 'evaluation'} is for those who may see the records")
    else:
        shared = f"share     nothing but with those who may see the records: {folder} is NOT PRIVATE"
    commands = "\n".join(f"  {line}" for line in _next_commands(folder, place, tested))
    return (f"samples   {folder / 'samples.npz'}\ngenerator {folder / 'generator'}\n{shared}\n"
            f"Go on with:\n{commands}")


def _next_commands(folder: pathlib.Path, place: str, tested: bool = False) -> Sequence[str]:
    """Three commands that work as they stand."""
    served, version = pathlib.Path(f"{folder}_export"), 1
    while (served / str(version)).exists():
        version += 1
    third = command("verify", _word(folder))
    if tested:
        third = command("evaluate", f"--samples={folder}")
    elif data_registry.has_test(place) and all(importlib.util.find_spec(package) for package in _EVALUATION):
        third = command("evaluate", f"--samples={folder}", "--quick")
    return (command("sample", f"--model={folder}", "--num_samples=1000", f"--output={folder}_samples.npz"), third,
            command("export", f"--run_dir={folder}", f"--output_dir={served}",
                    *([f"--version={version}"] if version > 1 else [])))


def _word(path: pathlib.Path) -> str:
    """A path as a word that is not taken for a flag."""
    return f"./{path}" if str(path).startswith("-") else str(path)
