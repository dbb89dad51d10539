"""The folder of a run: its files, and the checks that they belong together."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import dp_accounting
import numpy as np

from datalens_tf import _checksums, _files, _validate
from datalens_tf.accounting.delta import check_delta
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.config import RunSettings, config_digest
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.identity import Identity, encode, matches, same_records
from datalens_tf.errors import CheckpointError, LedgerError

# What a run writes before it has a ledger.
_BEFORE_THE_LEDGER = {"lock", "data.json", "sources.json", "training.jsonl", "unreadable.txt"}


class RunFolder:
    """Names of the files of a run. `private` holds what must never be shared."""

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self.config = self.path / "config.json"
        self.ledger = self.path / "ledger.jsonl"
        self.logs = self.path / "logs"
        self.generator = self.path / "generator"
        self.samples = self.path / "samples.npz"
        self.samples_png = self.path / "samples.png"
        self.statement_json = self.path / "privacy.json"
        self.statement_text = self.path / "privacy.txt"
        self.private = self.path / "private"
        self.checkpoints = self.private / "checkpoints"
        self.bank = self.private / "teachers.bin"
        self.actors = self.private / "actors"
        self.releases = self.private / "releases"
        self.identity = self.private / "data.json"
        self.sources = self.private / "sources.json"
        self.unreadable = self.private / "unreadable.txt"
        self.private_log = self.private / "training.jsonl"
        # Files that a finished run can be verified by; a folder stands for all that is in it.
        self.sealed: tuple[pathlib.Path, ...] = (
            self.config, self.ledger, self.statement_json, self.statement_text, self.samples, self.samples_png,
            self.generator)

    def create(self) -> None:
        """Makes the folders; raises DataLensError where the operating system refuses."""
        with _files.clear_os_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self.private.mkdir(mode=0o700, exist_ok=True)
            self.private.chmod(0o700)

    def seal(self) -> None:
        """Writes the checksums of the files that a finished run hands out."""
        files = [file for path in self.sealed for file in ([path] if path.is_file() else path.rglob("*"))]
        _checksums.write(self.path, [file for file in files if file.is_file()])

    def trained_on(self, dataset: Dataset) -> bool | None:
        """Whether these are the very records that the run was trained on; None where the folder does not say."""
        return same_records(dataset, _read_text(self.identity)) if self.identity.is_file() else None

    def paid_for(self) -> pathlib.Path | None:
        """Something in the folder that exists only once there is a ledger; None if there is nothing."""
        made = [path for path in (self.statement_json, self.generator) if path.exists()]
        made += [path for path in self.private.iterdir()
                 if path.name not in _BEFORE_THE_LEDGER and not path.name.startswith(".")]
        return min(made, default=None)


@contextlib.contextmanager
def exclusive(run_dir: pathlib.Path) -> Iterator[None]:
    """Holds the run folder for this process; raises CheckpointError if another process trains in it."""
    with open(run_dir / "private" / "lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CheckpointError(f"{run_dir} is in use by another process: wait for it to end.") from error
        yield


@contextlib.contextmanager
def opened(files: RunFolder, config: RunSettings, identity: Identity, event: dp_accounting.DpEvent,
           largest_event: dp_accounting.DpEvent | None = None) -> Iterator[PrivacyLedger]:
    """Makes the folder where there is none, holds its lock until the block ends, and opens the run in it.

    Args:
      files, config, identity, event, largest_event: as for `open_run`.

    Raises:
      DataLensError: as for `open_run`; CheckpointError also where another process trains in the folder.
    """
    files.create()
    with exclusive(files.path):
        yield open_run(files, config, identity, event, largest_event)


@contextlib.contextmanager
def opened_any(files: RunFolder, config: RunSettings, identity: Identity, event: dp_accounting.DpEvent | None
               ) -> Iterator[PrivacyLedger | None]:
    """Like `opened`, also for a method that is not private: with an event of None, there is no ledger."""
    if event is not None:
        with opened(files, config, identity, event) as ledger:
            yield ledger
        return
    files.create()
    with exclusive(files.path):
        _open_unpriced(files, config, identity)
        yield None


def open_run(files: RunFolder, config: RunSettings, identity: Identity, event: dp_accounting.DpEvent,
             largest_event: dp_accounting.DpEvent | None = None) -> PrivacyLedger:
    """Creates the files of a run, or verifies that they belong to this configuration and data set.

    Args:
      files: the folder, of which this process must hold the lock, because opening a ledger may repair it.
      config: resolved settings.
      identity: identity by which the run recognises its data; private.
      event: what a step costs.
      largest_event: what the costliest line of the ledger will cost; None where that is a step.

    Raises:
      InvalidArgumentError: a new run's delta is too large for so many records, see `check_delta`.
      CheckpointError, LedgerError: the folder is of another configuration or data set, damaged, or has lost its ledger.
    """
    if files.ledger.exists():
        ledger = PrivacyLedger.open(files.ledger)
        _check(files, config, identity)
        if config_digest(_read_text(files.config)) != ledger.config_digest:
            raise _other_configuration(files)
        if files.statement_json.exists():
            stated = _read_json(files.statement_json)
            # Old statements hold only the number of charges, which is the number of the ledger's lines.
            num_lines = 0 if "ledger_head" in stated else stated.get("num_charges", 0)
            ledger.check_ancestor(stated.get("ledger_head"), files.statement_json, num_lines)
        return ledger
    if (made := files.paid_for()) is not None:
        raise LedgerError(f"{files.ledger} is missing, and {made} rests on its charges: put the run's newest ledger "
                          "back, or train in another folder, where what was spent here counts as well.")
    check_delta(config, int(np.sum(identity["num_records"])))  # With owners, each has a number.
    _create(files, config, identity)
    # The ledger comes last: a folder that has one has everything.
    return PrivacyLedger.create(
        files.ledger, epsilon=_validate.known("epsilon", config.epsilon), delta=config.delta,
        accountant=_validate.known("accountant", config.accountant), adjacency=config.adjacency,
        config_digest=config_digest(config.public().to_json()), step_event=event,
        secret_noise=config.insecure_noise_seed is None, largest_event=largest_event)


def _open_unpriced(files: RunFolder, config: RunSettings, identity: Identity) -> None:
    """`open_run` for a method that is not private and has no ledger."""
    if files.identity.exists():
        _check(files, config, identity)
    else:
        _create(files, config, identity)


def _create(files: RunFolder, config: RunSettings, identity: Identity) -> None:
    """Writes the files that every run has, with or without a ledger."""
    _files.atomic_write(files.config, config.public().to_json())
    _files.atomic_write(files.identity, encode(identity))


def _check(files: RunFolder, config: RunSettings, identity: Identity) -> None:
    """Raises CheckpointError where the folder is of another run."""
    text = _read_text(files.config)
    stored = type(config).from_json(text)
    if '"classes"' not in text:  # From before classes could be chosen: the same records have the same classes.
        stored = stored.replace(classes=config.classes)
    # Settings that older versions stored name places on the machine.
    if stored.public() != config.public():
        raise _other_configuration(files)
    if not matches(identity, _read_text(files.identity)):
        raise CheckpointError(f"{files.path} was trained on other records than the ones given.")


def _other_configuration(files: RunFolder) -> CheckpointError:
    return CheckpointError(f"{files.path} was trained with another configuration: see its config.json, or choose "
                           "another folder.")


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    """A JSON object in a file of the run folder."""
    try:
        content = _files.parse_json(_read_text(path))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise CheckpointError(f"Damaged {path}: it holds no JSON object. Delete it; --resume writes it again.")
    return content


def _read_text(path: pathlib.Path) -> str:
    """Content of a file of the run folder."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"Cannot read {path}: {error}. Restore it from a copy.") from error
