import hashlib
import io
import json
import math
import os
import re
import stat

import dp_accounting
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import Charge, PrivacyLedger
from datalens_tf.errors import BudgetExhaustedError, InvalidArgumentError, LedgerError

STEP = dp_accounting.GaussianDpEvent(20.0)
SETTINGS = {"epsilon": 1.0, "delta": 1e-5, "accountant": "gdp", "config_digest": "abc", "step_event": STEP}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def create(path, num_charges=0, **changes):
    ledger = PrivacyLedger.create(path, **{**SETTINGS, **changes})
    for step in range(num_charges):
        ledger.spend(STEP, step=step)
    return ledger


def edit_line(path, number, old, new):
    lines = path.read_bytes().splitlines(keepends=True)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new)
    path.write_bytes(b"".join(lines))


class TestCharging:
    def test_charges_survive_reopening(self, path):
        ledger = create(path, 3)
        reopened = PrivacyLedger.open(path)
        assert reopened.charges == ledger.charges == tuple(
            Charge(index=i, step=i, event=STEP) for i in range(3))
        for name in ("epsilon_budget", "delta", "accountant", "config_digest", "step_event"):
            assert getattr(reopened, name) == getattr(ledger, name)
        assert reopened.spend(STEP, step=3) == 3
        assert len(PrivacyLedger.open(path).charges) == 4

    def test_a_charge_is_on_disk_when_spend_returns_and_was_synced(self, path, monkeypatch):
        ledger = create(path)
        synced = []
        original = os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size) or original(fd))
        ledger.spend(STEP, step=0)
        assert synced == [path.stat().st_size]
        assert path.read_bytes().count(b"\n") == 2

    def test_spent_is_the_accountants_epsilon(self, path):
        ledger = create(path)
        assert ledger.spent() == 0.0
        ledger.spend(STEP, step=0)
        ledger.spend(STEP, step=1)
        assert ledger.spent() == accountants.epsilon(STEP, 2, 1e-5, "gdp")
        assert ledger.spent("rdp") == accountants.epsilon(STEP, 2, 1e-5, "rdp") > ledger.spent()

    @pytest.mark.parametrize("accountant", accountants.ACCOUNTANTS)
    def test_spends_exactly_the_affordable_steps_and_writes_nothing_beyond(self, path, accountant):
        affordable = accountants.max_steps(STEP, 1.0, 1e-5, accountant)
        ledger = create(path, affordable, accountant=accountant)
        before = path.read_bytes()
        assert affordable > 1 and not ledger.can_spend(STEP)
        with pytest.raises(BudgetExhaustedError, match="epsilon=1 does not pay") as error:
            ledger.spend(STEP, step=affordable)
        said = float(re.search(r"step: (.*) is spent", str(error.value))[1])
        assert ledger.spent() <= said < ledger.spent() + 1e-4
        assert path.read_bytes() == before and len(ledger.charges) == affordable
        assert ledger.spent() <= 1.0

    def test_a_step_can_be_charged_again_but_never_refunded(self, path):
        ledger = create(path, 1)
        assert ledger.spend(STEP, step=0) == 1
        assert ledger.spent() == accountants.epsilon(STEP, 2, 1e-5, "gdp")

    @pytest.mark.parametrize("event", [
        dp_accounting.GaussianDpEvent(math.nan), dp_accounting.GaussianDpEvent(-1.0),
        dp_accounting.GaussianDpEvent(math.inf), None])
    def test_an_event_without_a_price_is_refused_and_not_written(self, path, event):
        ledger = create(path)
        before = path.read_bytes()
        for act in (ledger.can_spend, lambda event: ledger.spend(event, step=0)):
            with pytest.raises(InvalidArgumentError):
                act(event)
        assert path.read_bytes() == before

    def test_a_noiseless_release_is_never_affordable(self, path):
        assert not create(path, epsilon=1e9).can_spend(dp_accounting.NonPrivateDpEvent())

    def test_other_events_survive_reopening(self, path):
        event = dp_accounting.ComposedDpEvent(
            [dp_accounting.SelfComposedDpEvent(STEP, 2), dp_accounting.LaplaceDpEvent(50.0)])
        ledger = create(path, accountant="rdp")
        ledger.spend(event, step=0)
        assert PrivacyLedger.open(path).charges[0].event == event
        assert PrivacyLedger.open(path).spent() == ledger.spent()

    def test_charges_cannot_be_edited_in_place(self, path):
        charge = create(path, 1).charges[0]
        with pytest.raises(AttributeError):
            charge.event = dp_accounting.NoOpDpEvent()

    def test_a_second_writer_is_noticed(self, path):
        first = create(path)
        second = PrivacyLedger.open(path)
        second.spend(STEP, step=0)
        with pytest.raises(LedgerError, match="changed since it was read"):
            first.spend(STEP, step=0)
        assert len(PrivacyLedger.open(path).charges) == 1

    def test_a_charge_that_could_not_be_synced_grants_nothing_and_is_counted(self, path, monkeypatch):
        ledger = create(path)

        def fail(fd):
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(LedgerError, match="Input/output error"):
                ledger.spend(STEP, step=0)
        with pytest.raises(LedgerError, match="changed since it was read"):
            ledger.spend(STEP, step=0)
        assert len(PrivacyLedger.open(path).charges) == 1


class TestCreation:
    def test_an_existing_ledger_is_never_overwritten(self, path):
        create(path, 2)
        before = path.read_bytes()
        with pytest.raises(LedgerError, match="exists already"):
            create(path)
        assert path.read_bytes() == before

    def test_a_new_ledger_is_synced_before_it_gets_its_name_and_its_folder_after(self, path, monkeypatch):
        synced = []
        original = os.fsync

        def fsync(fd):
            synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), path.exists()))
            original(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        create(path)
        assert synced == [(False, False), (True, True)]
        assert os.listdir(path.parent) == [path.name]

    @pytest.mark.parametrize("changes", [
        {"epsilon": 0.0}, {"epsilon": math.nan}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": math.nan},
        {"accountant": "none"}, {"step_event": dp_accounting.GaussianDpEvent(math.nan)}])
    def test_settings_outside_their_domain_are_refused_before_anything_is_written(self, path, changes):
        with pytest.raises(InvalidArgumentError):
            create(path, **changes)
        assert not path.exists()

    def test_a_missing_file_or_folder_is_one_clear_line(self, path):
        with pytest.raises(LedgerError, match="ledger.jsonl: No such file"):
            PrivacyLedger.open(path)
        with pytest.raises(LedgerError, match="No such file"):
            create(path.parent / "missing" / "ledger.jsonl")


class TestCrashWhileAppending:
    def test_every_cut_through_the_last_line_is_counted_and_repaired(self, path):
        create(path, 3)
        whole = path.read_bytes()
        start = whole[:-1].rindex(b"\n") + 1
        for cut in range(start + 1, len(whole)):
            path.write_bytes(whole[:cut])
            ledger = PrivacyLedger.open(path)
            assert [charge.index for charge in ledger.charges] == [0, 1, 2]
            assert ledger.charges[2].event == STEP
            assert ledger.charges[2].step == (2 if cut == len(whole) - 1 else None)
            ledger.spend(STEP, step=9)
            reopened = PrivacyLedger.open(path)
            assert reopened.charges == ledger.charges and len(reopened.charges) == 4

    def test_a_hole_of_zeros_before_the_last_newline_is_counted(self, path):
        create(path, 2)
        whole = path.read_bytes()
        path.write_bytes(whole[:-40] + bytes(39) + b"\n")
        assert len(PrivacyLedger.open(path).charges) == 2

    def test_the_unreadable_line_costs_as_much_as_the_costliest_charge(self, path):
        costly = dp_accounting.GaussianDpEvent(10.0)
        ledger = create(path)
        ledger.spend(costly, step=0)
        ledger.spend(STEP, step=1)
        with open(path, "ab") as file:
            file.write(b'{"kind": "cha')
        assert PrivacyLedger.open(path).charges[2] == Charge(index=2, step=None, event=costly)

    def test_the_first_charge_unreadable_costs_a_step(self, path):
        create(path)
        with open(path, "ab") as file:
            file.write(b"{")
        assert PrivacyLedger.open(path).charges == (Charge(index=0, step=None, event=STEP),)

    def test_a_repair_that_crashes_loses_nothing(self, path, monkeypatch):
        create(path, 2)
        with open(path, "ab") as file:
            file.write(b"{")
        before = path.read_bytes()

        def crash(*args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", crash)
            with pytest.raises(KeyboardInterrupt):
                PrivacyLedger.open(path)
        assert path.read_bytes() == before
        assert len(PrivacyLedger.open(path).charges) == 3

    def test_an_unreadable_line_may_overdraw_but_then_nothing_more_is_granted(self, path):
        affordable = accountants.max_steps(STEP, 1.0, 1e-5, "gdp")
        create(path, affordable)
        with open(path, "ab") as file:
            file.write(b"{")
        ledger = PrivacyLedger.open(path)
        assert ledger.spent() > 1.0 and not ledger.can_spend(STEP)


class TestDamage:
    @pytest.mark.parametrize("number, old, new", [
        (1, b'"epsilon": 1.0', b'"epsilon": 9.0'),
        (1, b'"delta"', b'"dleta"'),
        (2, b'20.0', b'90.0'),
        (3, b'"step": 1', b'"step": 7'),
        (4, b'20.0', b'90.0'),
        (2, b'{', b''),
        (1, b'{', b''),
        (2, b'GaussianDpEvent', b'NoOpDpEvent'),
    ])
    def test_an_altered_line_is_refused_by_file_and_number(self, path, number, old, new):
        create(path, 3)
        edit_line(path, number, old, new)
        damaged = path.read_bytes()
        with pytest.raises(LedgerError, match=rf"ledger\.jsonl, line {number} ") as error:
            PrivacyLedger.open(path)
        assert "\n" not in str(error.value) and error.value.exit_code == 2
        assert path.read_bytes() == damaged

    @pytest.mark.parametrize("order", [(0, 1, 3), (0, 2, 1, 3), (0, 1, 1, 2, 3)])
    def test_removed_swapped_and_repeated_lines_are_noticed(self, path, order):
        create(path, 3)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[i] for i in order))
        with pytest.raises(LedgerError, match="line [23] was altered"):
            PrivacyLedger.open(path)

    @pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"[]\n", b"null\n", b"\xff\xfe\n", b'{"kind'])
    def test_a_file_that_is_no_ledger_is_refused(self, path, content):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="line 1"):
            PrivacyLedger.open(path)

    def test_a_header_of_another_version_is_refused(self, path):
        create(path)
        header = {key: value for key, value in json.loads(path.read_bytes()).items() if key != "hash"} | {"version": 3}
        header["hash"] = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps(header) + "\n")
        with pytest.raises(LedgerError, match="line 1 is no header of version 1 or 2"):
            PrivacyLedger.open(path)


    @pytest.mark.parametrize("changes, complaint", [
        ({"index": 0}, "line 3 is not charge 1"), ({"kind": "note"}, "line 3 is not charge 1"),
        ({"event": {"type": "NeighboringRelation"}}, "line 3 has unexpected content .*to be an event")])
    def test_a_line_with_a_fresh_hash_must_still_be_the_next_charge(self, path, changes, complaint):
        create(path, 2)
        *lines, last = map(json.loads, path.read_bytes().splitlines())
        last = {name: value for name, value in last.items() if name != "hash"} | changes
        digest = hashlib.sha256((lines[-1]["hash"] + json.dumps(last, sort_keys=True)).encode()).hexdigest()
        path.write_text("".join(json.dumps(line) + "\n" for line in (*lines, last | {"hash": digest})))
        with pytest.raises(LedgerError, match=complaint):
            PrivacyLedger.open(path)


def test_a_ledger_that_was_only_read_grants_nothing(path):
    create(path, 1)
    content = path.read_bytes()
    with pytest.raises(LedgerError, match="opened to be read only"):
        PrivacyLedger.read(path).spend(STEP, step=1)
    assert path.read_bytes() == content


def test_a_line_that_the_disk_took_in_part_grants_nothing_and_is_counted(path, monkeypatch):
    ledger = create(path, 1)

    class FullDisk(io.FileIO):
        def write(self, line):
            return super().write(line[:-9])

    monkeypatch.setattr(
        "datalens_tf.accounting.ledger.open", lambda name, *_, **__: FullDisk(name, "r+"), raising=False)
    with pytest.raises(LedgerError, match="could not be written in full: free disk space"):
        ledger.spend(STEP, step=1)
    monkeypatch.undo()
    assert PrivacyLedger.open(path).num_charges == 2


def test_reading_counts_a_half_written_line_and_leaves_the_file_alone(path):
    create(path, 1)
    with open(path, "ab") as file:
        file.write(b'{"kind": "char')
    content = path.read_bytes()
    assert len(PrivacyLedger.read(path).charges) == 2
    assert path.read_bytes() == content
    assert len(PrivacyLedger.open(path).charges) == 2 and path.read_bytes() != content


@pytest.mark.parametrize("read", [PrivacyLedger.read, PrivacyLedger.open])
def test_an_altered_middle_line_is_refused_however_it_is_read(path, read):
    create(path, 3)
    edit_line(path, 2, b"20.0", b"25.0")
    with pytest.raises(LedgerError, match="line 2 was altered"):
        read(path)
