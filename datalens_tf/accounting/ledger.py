"""The privacy ledger: a durable list of charges. Charge first, then draw the noise; nothing is ever un-charged.

The file is JSON lines: a header, then one line per release. Every line ends with a SHA-256 over itself and the previous
line's hash, so that an altered, missing or reordered line in the middle is noticed. The hash of the last line, the
ledger's head, therefore names everything that was ever charged. Everything that rests on charges (snapshots, stored
releases, statements) keeps the head under which it was made. A ledger that has lost lines, or that belongs to another
run, does not have that head.

The run, each start of a process and each line have a random id. The ids tell apart what would otherwise look the same:
two copies of a run that were both continued, from a restored backup or a cloned machine, are two releases, and
`composition_report` charges for both.

The chain has no key: it guards against accidents and lost lines, not against an owner who rewrites the whole file.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import secrets
from typing import Any

import attr
import dp_accounting

from datalens_tf import _files, _validate, events
from datalens_tf.accounting import accountants
from datalens_tf.bounds.accountant import RELATIONS
from datalens_tf.config import ACCOUNTANTS
from datalens_tf.errors import BudgetExhaustedError, InvalidArgumentError, LedgerError

_VERSION = 2  # 1 had no ids.
_READABLE = (1, _VERSION)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charge:
    """One line of the ledger.

    Attributes:
      index: position in the ledger, from 0.
      step: the generator step it was charged for; None where a crash left the line unreadable.
      event: what was charged. A release paid for by several charges has one line, whose event is their composition.
      count: how many charges of `unit` the line stands for.
      start: random id of the process that charged; None in ledgers of version 1.
    """

    index: int
    step: int | None
    event: dp_accounting.DpEvent
    count: int = 1
    start: str | None = dataclasses.field(default=None, compare=False)

    @property
    def unit(self) -> dp_accounting.DpEvent:
        """The event of one charge."""
        return self.event if self.count == 1 else self.event.event


class PrivacyLedger:
    """Charges against one budget, in one file. Make one with `create` or `open`.

    Attributes:
      path: the file.
      run_id: random id of the run; None in ledgers of version 1.
      secret_noise: whether the noise of the releases is a secret; if not, no charge buys any privacy. True in ledgers
        of version 1, which do not record it.
      epsilon_budget, delta, accountant, adjacency: the budget and how it is measured; fixed at creation.
      config_digest: digest of the configuration that the ledger belongs to; fixed at creation.
      step_event: what one step is expected to cost.
      largest_event: what the costliest line is expected to cost; an unreadable last line is charged at least that.
      charges: all charges so far, oldest first.
      version: version of the file format.
    """

    def __init__(self, path: pathlib.Path, header: dict[str, Any], charges: tuple[Charge, ...], hashes: list[str],
                 lines: list[bytes]):
        self.path = path
        self.version: int = header["version"]
        self.run_id: str | None = header.get("run_id")
        self.secret_noise: bool = header.get("secret_noise", True)
        self.epsilon_budget: float = header["epsilon"]
        self.delta: float = header["delta"]
        self.accountant: str = header["accountant"]
        self.adjacency: str = header.get("adjacency", "replace-one")  # Older ledgers have no other.
        self.config_digest: str = header["config_digest"]
        self.step_event = decode_event(header["step_event"])
        self.largest_event = decode_event(header.get("largest_event", header["step_event"]))
        self.charges = charges
        self._hashes, self._lines = hashes, lines  # of the header, then of each charge
        self._start = secrets.token_hex(8)
        self._size: int | None = None  # of the file; None where it must not be written
        # The event that the first lines all charge, the number of those lines, and the number of their charges.
        self._uniform: tuple[dp_accounting.DpEvent, int, int] | None = None
        self._affordable: int | None = None  # charges of that event
        _validate.positive("epsilon", self.epsilon_budget)
        _validate.between("delta", self.delta, 0, 1, open_low=True, open_high=True)
        _validate.one_of("accountant", self.accountant, ACCOUNTANTS)
        _validate.one_of("adjacency", self.adjacency, RELATIONS)

    @classmethod
    def create(
        cls,
        path: _files.PathLike,
        *,
        epsilon: float,
        delta: float,
        accountant: str,
        config_digest: str,
        step_event: dp_accounting.DpEvent,
        adjacency: str = "replace-one",
        secret_noise: bool = True,
        largest_event: dp_accounting.DpEvent | None = None,
    ) -> "PrivacyLedger":
        """Writes a new ledger without charges; the arguments are attributes of the class.

        A `largest_event` of None stands for `step_event`.

        Raises:
          InvalidArgumentError: a value is outside its domain.
          LedgerError: the file exists, or cannot be written.
        """
        path = pathlib.Path(path)
        header = {"kind": "header", "version": _VERSION, "run_id": secrets.token_hex(16), "secret_noise": secret_noise,
                  "epsilon": epsilon, "delta": delta, "accountant": accountant, "adjacency": adjacency,
                  "config_digest": config_digest, "step_event": encode_event(step_event),
                  "largest_event": encode_event(largest_event or step_event)}
        ledger = cls(path, header, (), [], [])
        ledger.can_spend(step_event)
        if path.exists():
            raise LedgerError(f"{path} exists already: open it to continue, or choose another folder.")
        line, digest = _seal(header, "")
        ledger._lines, ledger._hashes = [line], [digest]
        ledger._replace_file()
        return ledger

    @classmethod
    def open(cls, path: _files.PathLike) -> "PrivacyLedger":
        """Reads and verifies a ledger.

        A last line that a crash left half-written is counted as a charge of the costliest event that the ledger knows,
        and is rewritten whole. Its noise was probably never drawn, but nobody can tell.

        Raises:
          LedgerError: the file is missing, or a line (its number is named) is damaged or altered.
        """
        return cls._load(pathlib.Path(path), repair=True)

    @classmethod
    def read(cls, path: _files.PathLike) -> "PrivacyLedger":
        """Reads like `open` but never writes: a half-written last line is counted and left as is. Not for spending."""
        return cls._load(pathlib.Path(path), repair=False)

    @classmethod
    def _load(cls, path: pathlib.Path, repair: bool) -> "PrivacyLedger":
        """Reads a ledger; see `open`."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise LedgerError(f"Cannot read the privacy ledger {path}: {error.strerror}.") from error
        lines = content.split(b"\n")
        complete = lines[-1] == b""
        if complete:
            lines.pop()
        records: list[dict[str, Any]] = []
        hashes: list[str] = []
        for number, line in enumerate(lines, start=1):
            try:
                record = _files.parse_json(line)
            except ValueError as error:
                if 1 < number == len(lines):
                    complete = False
                    break
                raise _damaged(path, number, "is not JSON") from error
            hashes.append(_verify(record, hashes[-1] if hashes else "", path, number))
            records.append(record)
        if not records:
            raise _damaged(path, 1, "is missing")
        ledger = cls._from_records(path, records, hashes, [line + b"\n" for line in lines[:len(records)]])
        if not complete:
            ledger._charge_unreadable_line(lines[len(records):])
        if repair:
            ledger._size = len(content)
            if not complete:
                ledger._replace_file()
        return ledger

    @property
    def head(self) -> str:
        """The hash of the last line, which names all that was charged."""
        return self._hashes[-1]

    @property
    def num_charges(self) -> int:
        """Number of charges of all lines together."""
        return sum(charge.count for charge in self.charges)

    @property
    def content(self) -> bytes:
        """The file as it should be."""
        return b"".join(self._lines)

    def until(self, num_lines: int) -> "PrivacyLedger":
        """The ledger as it was after its first `num_lines` charges; it cannot be spent from."""
        lines = self._lines[:1 + num_lines]
        records = [_files.parse_json(line) for line in lines]
        return self._from_records(self.path, records, self._hashes[:len(lines)], lines)

    def hash_of(self, index: int) -> str:
        """The ledger's head right after the charge of this index; an index of -1 gives the head without charges."""
        return self._hashes[index + 1]

    def check_ancestor(self, head: str | None, what: _files.PathLike, num_lines: int) -> None:
        """Refuses a file that was made under another ledger, or under charges that this ledger has lost.

        Args:
          head: the ledger's head when the file was made. None where it was not written down, which is accepted only
            for ledgers of version 1.
          what: the file that rests on those charges.
          num_lines: how many charges the file rests on, at least.

        Raises:
          LedgerError: `head` was never this ledger's, or came before that many charges.
        """
        if head is None and self.version == 1:
            known = num_lines <= len(self.charges)
        else:
            known = head in self._hashes and self._hashes.index(head) >= num_lines
        if not known:
            raise LedgerError(f"{self.path} lacks charges that {os.fspath(what)} rests on, or is of another run: put "
                              "the run's newest ledger back, or train in another folder, where what was spent here "
                              "counts as well.")

    def can_spend(self, event: dp_accounting.DpEvent) -> bool:
        """Whether this event on top of all charges stays within the budget.

        Raises:
          InvalidArgumentError: the event cannot be priced, say because its noise multiplier is NaN.
        """
        unit, count = _split(event, self.step_event)
        charged = self._number_if_all_are(unit)
        if charged is not None:
            # All charges cost the same: the affordable number is computed once, instead of an epsilon before each step.
            if self._affordable is None:
                with contextlib.suppress(InvalidArgumentError):  # Too cheap to limit the steps, or without a price.
                    self._affordable = accountants.max_steps(
                        unit, self.epsilon_budget, self.delta, self.accountant, self.adjacency)
            if self._affordable is not None:
                return charged + count <= self._affordable
        spent = accountants.epsilon_of([*self._events(), event], self.delta, self.accountant, self.adjacency)
        return spent <= self.epsilon_budget

    def spend(self, event: dp_accounting.DpEvent, *, step: int) -> int:
        """Charges the event, durably on disk, and returns the index of the charge. Draw the noise after that.

        Args:
          event: what is about to be released. A `SelfComposedDpEvent` of a step's event is `count` charges at once.
          step: the generator step that it is for. A step can be charged more than once: a charge whose noisy sum was
            lost is burnt, not refunded.

        Raises:
          BudgetExhaustedError: the budget does not allow it; nothing was written.
          InvalidArgumentError: the event cannot be priced; nothing was written.
          LedgerError: the line could not be written durably, or the file changed under us; open the ledger again. What
            did reach the disk is then counted as charged.
        """
        _validate.integer("step", step, at_least=0)
        if not self.can_spend(event):
            raise BudgetExhaustedError(
                f"The privacy budget epsilon={self.epsilon_budget:g} does not pay for another step: "
                f"{accountants.round_up(self.spent())} is spent after {self.num_charges} charges (accountant "
                f"{self.accountant}, delta={self.delta:g}).")
        unit, count = _split(event, self.step_event)
        charge = Charge(index=len(self.charges), step=int(step), event=unit if count == 1 else event, count=count,
                        start=self._start)
        line, digest = _seal(_charge_record(charge), self.head)
        self._append(line)
        self._add(charge, line, digest)
        return charge.index

    def spent(self, accountant: str | None = None) -> float:
        """Epsilon of all charges, at the ledger's delta, by its own accountant or another one."""
        return accountants.epsilon_of(self._events(), self.delta, accountant or self.accountant, self.adjacency)

    def _number_if_all_are(self, event: dp_accounting.DpEvent) -> int | None:
        """Number of charges if every one is this event, else None; charges already compared are not compared again."""
        if self._uniform is None or self._uniform[0] != event:
            self._uniform, self._affordable = (event, 0, 0), None
        _, lines, count = self._uniform
        while lines < len(self.charges) and self.charges[lines].unit == event:
            count += self.charges[lines].count
            lines += 1
        self._uniform = (event, lines, count)
        return count if lines == len(self.charges) else None

    def _events(self) -> list[dp_accounting.DpEvent]:
        """The events of all charges."""
        return [charge.event for charge in self.charges]

    def _add(self, charge: Charge, line: bytes, digest: str) -> None:
        """Adds a line that is, or will be, in the file."""
        self.charges = (*self.charges, charge)
        self._lines.append(line)
        self._hashes.append(digest)

    @classmethod
    def _from_records(cls, path: pathlib.Path, records: list[dict[str, Any]], hashes: list[str], lines: list[bytes]
                      ) -> "PrivacyLedger":
        """Builds the ledger from verified lines, checking their content."""
        number = 1
        try:
            header, *rest = records
            if header["kind"] != "header" or header["version"] not in _READABLE:
                raise _damaged(path, number, f"is no header of version {' or '.join(map(str, _READABLE))}")
            charges, step_event = [], decode_event(header["step_event"])
            for number, record in enumerate(rest, start=2):
                if record["kind"] != "charge" or record["index"] != number - 2:
                    raise _damaged(path, number, f"is not charge {number - 2}")
                event = decode_event(record["event"])
                charges.append(Charge(index=record["index"], step=record["step"], event=event,
                                      count=_split(event, step_event)[1], start=record.get("start")))
            number = 1
            return cls(path, header, tuple(charges), hashes, lines)
        except (KeyError, TypeError, InvalidArgumentError) as error:
            raise _damaged(path, number, f"has unexpected content ({error})") from error

    def _charge_unreadable_line(self, rest: list[bytes]) -> None:
        """Counts an unreadable last line as a charge; does nothing where the last line lacks only its newline."""
        if rest:
            worst = max([self.step_event, self.largest_event, *self._events()],
                        key=lambda event: accountants.epsilon_of([event], self.delta, self.accountant, self.adjacency))
            charge = Charge(index=len(self.charges), step=None, event=worst, start=self._start,
                            count=_split(worst, self.step_event)[1])
            self._add(charge, *_seal(_charge_record(charge), self.head))

    def _append(self, line: bytes) -> None:
        """Appends and fsyncs; raises if the file is not as we last left it."""
        if self._size is None:
            raise LedgerError(f"{self.path} was opened to be read only: it cannot be charged.")
        try:
            with open(self.path, "r+b", buffering=0) as file:
                if file.seek(0, os.SEEK_END) != self._size:
                    raise LedgerError(f"{self.path} changed since it was read: open it again (resume the run).")
                if file.write(line) != len(line):
                    raise LedgerError(f"{self.path} could not be written in full: free disk space and resume the run.")
                os.fsync(file.fileno())
        except OSError as error:
            raise LedgerError(f"Cannot write the privacy ledger {self.path}: {error.strerror}.") from error
        self._size += len(line)

    def _replace_file(self) -> None:
        """Writes the whole file aside, fsyncs, renames and fsyncs the folder."""
        aside, content = self.path.with_name(self.path.name + ".tmp"), self.content
        try:
            with open(aside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise LedgerError(f"Cannot write the privacy ledger {self.path}: {error.strerror}.") from error
        self._size = len(content)


def _damaged(path: pathlib.Path, number: int, what: str) -> LedgerError:
    """The error about a damaged ledger, in one clear line."""
    return LedgerError(f"Damaged privacy ledger: {path}, line {number} {what}. Put the run's newest ledger back: an "
                       "older copy lacks charges, and what was made under them refuses it.")


def _seal(record: dict[str, Any], previous_hash: str) -> tuple[bytes, str]:
    """The record as a line that ends with its hash, and the hash."""
    digest = _hash(record, previous_hash)
    return json.dumps({**record, "hash": digest}, allow_nan=False).encode() + b"\n", digest


def _verify(record: Any, previous_hash: str, path: pathlib.Path, number: int) -> str:
    """Returns the record's hash; raises if it does not follow from the content and the previous line's hash."""
    if not isinstance(record, dict):
        raise _damaged(path, number, "is not a JSON object")
    content = {key: value for key, value in record.items() if key != "hash"}
    digest = _hash(content, previous_hash)
    if record.get("hash") != digest:
        raise _damaged(path, number, "was altered, or the line before it was removed")
    return digest


def _hash(record: dict[str, Any], previous_hash: str) -> str:
    """SHA-256 of the previous line's hash and this line's content."""
    return hashlib.sha256((previous_hash + json.dumps(record, sort_keys=True)).encode()).hexdigest()


def _charge_record(charge: Charge) -> dict[str, Any]:
    """A charge as JSON, with a random id so that no other line ever equals it."""
    return {"kind": "charge", "index": charge.index, "step": charge.step, "event": encode_event(charge.event),
            "start": charge.start, "id": secrets.token_hex(8)}


def _split(event: dp_accounting.DpEvent, step_event: dp_accounting.DpEvent) -> tuple[dp_accounting.DpEvent, int]:
    """The event that is composed with itself, and how often; a step's event is one charge, even if it is composed."""
    if isinstance(event, dp_accounting.SelfComposedDpEvent) and event != step_event:
        return event.event, event.count
    return event, 1


def encode_event(event: Any) -> Any:
    """An event as JSON, with all the events that it holds."""
    if isinstance(event, dp_accounting.DpEvent):
        fields = attr.asdict(event, recurse=False)
        return {"type": type(event).__name__, **{name: encode_event(value) for name, value in fields.items()}}
    return [encode_event(part) for part in event] if isinstance(event, (list, tuple)) else event


def decode_event(value: Any) -> Any:
    """Inverse of `encode_event`; knows the events of dp_accounting and of `events` only."""
    if isinstance(value, dict):
        fields = {name: decode_event(part) for name, part in value.items() if name != "type"}
        name = str(value.get("type"))
        kind = getattr(dp_accounting, name, None) or getattr(events, name, None)
        if not (isinstance(kind, type) and issubclass(kind, dp_accounting.DpEvent)):
            raise InvalidArgumentError(f"Expected type={value.get('type')!r} to be an event of dp_accounting.")
        return kind(**fields)
    return [decode_event(part) for part in value] if isinstance(value, list) else value
