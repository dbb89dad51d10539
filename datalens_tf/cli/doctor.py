"""`datalens doctor`: whether this installation and this machine can train. It changes nothing."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import pathlib
import platform
import shutil
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from etils import epy

from datalens_tf import __version__, _text
from datalens_tf.cli import common
from datalens_tf.cli.parser import Command, Parser
from datalens_tf.errors import BrokenInstallationError

with epy.lazy_imports():
    from packaging import requirements, specifiers

    from datalens_tf.data import registry as data_registry
    from datalens_tf.training import progress

_PACKAGE = "datalens_tf"
_LEAST_MEMORY, _LEAST_SPACE = 2.0, 1.0  # GiB, below which the smallest runs may fail
_OURS = {"dev", "docs", "test"}  # extras for people who change the package
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Finding(NamedTuple):
    """One line of the report.

    Attributes:
      mark: `ok`, `note` for what works and is worth knowing, or `BROKEN`.
      name: the subject.
      text: what was found, and what to do where something is broken.
    """

    mark: str
    name: str
    text: str


def findings(data_dir: str | None = None) -> Iterator[Finding]:
    """Everything that is looked at, in the order of the report.

    Args:
      data_dir: folder of TensorFlow Datasets; None takes `TFDS_DATA_DIR`.
    """
    yield from _versions()
    yield _tensorflow()
    yield from _machine()
    for name, folder in {"this folder": os.curdir, "temporary": tempfile.gettempdir()}.items():
        yield _folder(name, pathlib.Path(folder))
    yield _data(data_dir or os.environ.get("TFDS_DATA_DIR"))


def _versions() -> Iterator[Finding]:
    """Python, and the packages that the installed package asks for."""
    found = f"{platform.python_version()}, datalens_tf {__version__}"
    try:
        about = importlib.metadata.metadata(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        yield Finding("note", "Python", f"{found}, which is not installed: versions of packages are not checked")
        return
    wanted = about["Requires-Python"]
    fits = wanted is None or platform.python_version() in specifiers.SpecifierSet(wanted)
    yield Finding("ok" if fits else "BROKEN", "Python", found if fits else f"{found}: make an environment with Python "
                  f"{wanted}")
    asked = [requirements.Requirement(text) for text in importlib.metadata.requires(_PACKAGE) or ()]
    always = [one for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    wrong = [text for one in always if (text := _wrong(one)) is not None]
    yield Finding("BROKEN" if wrong else "ok", "packages", f"{'; '.join(wrong)}. pip install '{_PACKAGE}' mends them"
                  if wrong else f"{len(always)}, all of versions that fit")
    for extra in sorted(set(about.get_all("Provides-Extra") or ()) - _OURS):
        parts = [one for one in asked if one not in always and one.marker is not None
                 and one.marker.evaluate({"extra": extra})]
        lacking = [one.name for one in parts if _wrong(one) is not None]
        yield Finding("note" if lacking else "ok", f"extra {extra}", f"lacks {', '.join(lacking)}: pip install "
                      f"'{_PACKAGE}[{extra}]' brings what it needs" if lacking else "installed")


def _wrong(requirement: requirements.Requirement) -> str | None:
    """The complaint about a package that is missing or of another version; None where it fits."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    fits = requirement.specifier.contains(version, prereleases=True)
    return None if fits else f"{requirement.name} is {version}, not {requirement.specifier}"


def _tensorflow() -> Finding:
    """Whether TensorFlow can be imported, which Keras 2 it has, and on how many GPUs it computes."""
    try:
        import tensorflow as tf

        keras = "tf-keras" if tf.keras.Sequential.__module__.startswith("tf_keras.") else "keras"
        gpus = tf.config.list_physical_devices("GPU")
    except Exception as error:  # noqa: BLE001 (whatever its libraries raise is the finding)
        return Finding("BROKEN", "TensorFlow", f"does not import: {_text.first_line(error)}. pip install '{_PACKAGE}' "
                       "in a new environment mends it")
    return Finding("ok", "TensorFlow", f"{tf.__version__} with {keras} {importlib.metadata.version(keras)}, "
                   f"{len(gpus) or 'no'} GPU{'s' * (len(gpus) > 1)}")


def _machine() -> Iterator[Finding]:
    """Cores, threads, memory and speed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("ok", "cores", f"{cores} of {os.cpu_count()}, {progress.machine_speed():.0f} billion multiplications "
                  "and additions a second")
    # On one core, the command line sets the last one itself.
    given = [f"{name}={os.environ[name]}" for name in _THREADS[:None if cores > 1 else -1] if name in os.environ]
    yield Finding("note" if given else "ok", "threads", f"{', '.join(given)} may leave cores without work" if given
                  else "one per core")
    page = os.sysconf("SC_PAGE_SIZE") / 2**30
    whole, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    enough = whole >= _LEAST_MEMORY
    yield Finding("ok" if enough else "BROKEN", "memory", f"{whole:.1f} GiB, {free:.1f} of them unused" + (
        "" if enough else f": less than the {_LEAST_MEMORY:g} GiB that the smallest runs take"))


def _folder(name: str, folder: pathlib.Path) -> Finding:
    """Whether the folder can be written to, and how much space is free."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
        free = shutil.disk_usage(folder).free / 2**30
    except OSError as error:
        return Finding("BROKEN", name, f"{folder.absolute()}: {error.strerror}. Choose another one"
                       + (" by TMPDIR" if name == "temporary" else ", or give run folders by their whole path"))
    enough = free >= _LEAST_SPACE
    return Finding("ok" if enough else "BROKEN", name, f"{folder.absolute()}: {free:.0f} GiB free"
                   + ("" if enough else ", too little for a run: free some"))


def _data(named: str | None) -> Finding:
    """The folder of TensorFlow Datasets, and which data are in it."""
    folder = pathlib.Path(named or "~/tensorflow_datasets").expanduser()
    if not folder.is_dir():
        return (Finding("BROKEN", "data", f"{folder}: there is no such folder. Set TFDS_DATA_DIR to the one with your "
                        "data, or unset it") if named else
                Finding("note", "data", "no folder of TensorFlow Datasets: TFDS_DATA_DIR or --data_dir names one, "
                        "where a known data set is wanted"))
    prepared = sorted(path.name for path in folder.iterdir() if any(path.glob("*/dataset_info.json")))
    known = [name for name in prepared if name in data_registry.known_datasets()]
    others = len(prepared) - len(known)
    return Finding("ok", "data", f"{folder}: {', '.join(known) or 'no known data set'}"
                   + (f", and {others} other{'s' * (others > 1)}" if others else ""))


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--data_dir", default=None, help=common.DATA_DIR_HELP)


def _doctor(args: argparse.Namespace) -> None:
    """Prints a line for each finding; raises BrokenInstallationError where something is broken."""
    broken = []
    for finding in findings(args.data_dir):
        print(f"{finding.mark:<7} {finding.name:<17}{_text.printable(finding.text)}", flush=True)
        broken += [finding.name] if finding.mark == "BROKEN" else []
    if broken:
        raise BrokenInstallationError(f"Broken: {', '.join(broken)}. The lines above say how to mend it.")
    print("Nothing is broken.")


COMMANDS = {"doctor": Command(_add_arguments, _doctor)}
