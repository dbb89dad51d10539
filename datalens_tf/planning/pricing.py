"""Accounting without training: what a budget pays for, what steps and releases cost, what noise they need."""

from collections.abc import Sequence
from typing import Any

from datalens_tf import _files, _validate
from datalens_tf.accounting import accountants as prices
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.ledger import Charge, PrivacyLedger
from datalens_tf.accounting.statement import unit_of
from datalens_tf.config import ACCOUNTANTS, VotingConfig, config_digest
from datalens_tf.errors import InvalidArgumentError


def privacy_report(config: VotingConfig, epsilon: float | None, accountants: Sequence[str] = ACCOUNTANTS
                   ) -> dict[str, Any]:
    """Answers by each accountant, as a JSON-able dictionary.

    `steps` and `epsilon_of_steps` (accountant that counts the steps -> accountant that prices them) answer a budget.
    `epsilon` answers `config.num_steps`. With both there is also `calibrated_noise_stddev`, which is None where no
    noise reaches the budget.

    Args:
      config: mechanism, batch_size, delta and num_steps (None: not asked).
      epsilon: the budget asked about; None: not asked.
      accountants: of `config.ACCOUNTANTS`.
    """
    mechanism = config.mechanism()
    event, sensitivity = mechanism.dp_event(config.batch_size), mechanism.l2_sensitivity(config.batch_size)

    def epsilons(num_steps):
        return {name: prices.epsilon(event, num_steps, config.delta, name) for name in accountants}

    def calibrated(accountant):
        try:
            return sensitivity * prices.calibrate_noise_multiplier(
                config.num_steps, epsilon, config.delta, accountant)
        except InvalidArgumentError:  # Renyi accountants have a floor.
            return None

    report = {"adjacency": config.adjacency, "top_k": mechanism.top_k, "batch_size": config.batch_size,
              "noise_stddev": config.noise_stddev, "delta": config.delta, "l2_sensitivity": sensitivity,
              "noise_multiplier_per_step": event.noise_multiplier}
    if epsilon is not None:
        steps = {name: prices.max_steps(event, epsilon, config.delta, name) for name in accountants}
        report |= {"epsilon_budget": epsilon, "steps": steps,
                   "epsilon_of_steps": {name: epsilons(count) for name, count in steps.items()}}
    if config.num_steps is not None:
        report |= {"num_steps": config.num_steps, "epsilon": epsilons(config.num_steps)}
    if epsilon is not None and config.num_steps is not None:
        report["calibrated_noise_stddev"] = {name: calibrated(name) for name in accountants}
    return report


def composition_report(ledgers: Sequence[PrivacyLedger], delta: float | None = None,
                       accountants: Sequence[str] = ACCOUNTANTS) -> dict[str, Any]:
    """Cost of several releases of the same records together, as a JSON-able dictionary.

    All charges of all ledgers are composed adaptively: later releases may depend on earlier ones. Where the ledgers are
    about different records, the sum promises less than is true.

    Copies of one run that were both continued are forks. Their common charges are counted once, and the charges that
    each made since then are counted as well. Forks are known by the random ids in their lines. Ledgers of version 1 do
    not have these ids, so all their charges are counted.

    If the noise of one run was predictable, in a test that asked for it, `private` is false and every epsilon is None:
    what such a run released is known without noise, whatever noise others added.

    Args:
      ledgers: at least one, each of a different file.
      delta: at which epsilon is computed; by default that of the ledgers, if they agree.
      accountants: of `config.ACCOUNTANTS`.

    Raises:
      InvalidArgumentError: a file given twice; ledgers of different delta and none given, or of different adjacency;
        releases that none of the accountants knows.
    """
    paths = [ledger.path.resolve() for ledger in ledgers]
    for path in paths:
        _validate.require(paths.count(path) == 1, "ledger", str(path), "to be given once: it would be counted twice")
    deltas = sorted({ledger.delta for ledger in ledgers})
    if delta is None:
        _validate.require(len(deltas) == 1, "delta", deltas, "to be one: give the one that epsilon is wanted at")
        delta = deltas[0]
    relations = sorted({ledger.adjacency for ledger in ledgers})
    _validate.require(len(relations) == 1, "adjacency", relations, "to be one: guarantees of different neighbours do "
                      "not add up. Each kind of run can be added up alone; the same records pay for both, more than "
                      "either sum")
    units_of = {ledger.path: _unit(ledger) for ledger in ledgers}
    unknown = [str(path) for path, unit in units_of.items() if unit is None]
    protected = {unit: path for path, unit in reversed(units_of.items()) if unit is not None}  # and the first of each
    if len(protected) > 1:
        found = " and ".join(f"{unit} in {path}" for unit, path in reversed(protected.items()))
        raise InvalidArgumentError(f"Expected ledgers that protect the same, got {found}: a guarantee for one image is "
                                   "a weaker one for somebody who has several. Each kind of run can be added up alone; "
                                   "somebody who has several images pays more than either sum.")
    units = [charge.unit for ledger in ledgers for charge in ledger.charges]
    together = _distinct_charges(ledgers)
    accountants = [name for name in accountants if all(name in prices.applicable(unit) for unit in units)
                   and _adds_up(together, delta, name, relations[0])]
    _validate.require(bool(accountants), "accountant", ", ".join(ACCOUNTANTS), "to know these releases; use rdp or pld")

    predictable = [str(ledger.path) for ledger in ledgers if not _has_secret_noise(ledger)]

    def epsilons(charges):
        if predictable:
            return dict.fromkeys(accountants)
        events = [charge.event for charge in charges]
        return {name: prices.epsilon_of(events, delta, name, relations[0]) for name in accountants}

    return {"delta": delta, "private": not predictable, "predictable_noise": predictable,
            "adjacency": relations[0], "unit": next(iter(protected), None),
            "unit_unknown": unknown if protected else [], "num_charges": sum(charge.count for charge in together),
            "forks": _forks(ledgers),
            "ledgers": [{"path": str(ledger.path), "num_charges": ledger.num_charges,
                         "epsilon": epsilons(ledger.charges)} for ledger in ledgers],
            "epsilon": epsilons(together)}


def _adds_up(charges: Sequence[Charge], delta: float, accountant: str, adjacency: str) -> bool:
    """Whether an accountant that knows each of these releases can add them up."""
    try:
        prices.epsilon_of([charge.event for charge in charges], delta, accountant, adjacency)
    except InvalidArgumentError:
        return False
    return True


def _settings(ledger: PrivacyLedger) -> dict[str, Any] | None:
    """The run's settings, beside its ledger; None where there are none, or those of another run."""
    try:
        text = ledger.path.with_name("config.json").read_text(encoding="utf-8")
        settings = _files.parse_json(text)
    except (OSError, ValueError):
        return None
    own = config_digest(text) == ledger.config_digest and isinstance(settings, dict)
    return settings if own else None


def _unit(ledger: PrivacyLedger) -> str | None:
    """The unit that a run protects; None where its settings do not say it."""
    settings = _settings(ledger)
    if settings is None or not isinstance(settings.get("unit"), str | None):
        return None
    return unit_of(settings.get("unit"), ledger.adjacency)[0]


def _has_secret_noise(ledger: PrivacyLedger) -> bool:
    """Whether the run's noise was secret. Ledgers of version 1 do not say it; the settings beside them do."""
    settings = _settings(ledger)
    return ledger.secret_noise and (settings is None or settings.get("insecure_noise_seed") is None)


def _distinct_charges(ledgers: Sequence[PrivacyLedger]) -> list[Charge]:
    """All charges; a line that several ledgers have, after the same earlier lines, is counted once."""
    return list({(ledger.hash_of(charge.index) if ledger.version > 1 else (str(ledger.path), charge.index)): charge
                 for ledger in ledgers for charge in ledger.charges}.values())


def _forks(ledgers: Sequence[PrivacyLedger]) -> list[dict[str, Any]]:
    """Ledgers of the same run: how many charges they share, and how many were made in one of them only."""
    runs: dict[str, list[PrivacyLedger]] = {}
    for ledger in ledgers:
        if ledger.run_id is not None:
            runs.setdefault(ledger.run_id, []).append(ledger)
    found = []
    for run_id, copies in runs.items():
        if len(copies) > 1:
            hashes = [{ledger.hash_of(charge.index): charge.count for charge in ledger.charges} for ledger in copies]
            shared = set.intersection(*map(set, hashes))
            found.append({"run_id": run_id, "ledgers": [str(ledger.path) for ledger in copies],
                          "shared_charges": sum(hashes[0][line] for line in shared),
                          "own_charges": [sum(count for line, count in own.items() if line not in shared)
                                          for own in hashes]})
    return found


def render_composition(report: dict[str, Any]) -> str:
    """The dictionary of `composition_report` as a table, numbers rounded up."""
    if not report["private"]:
        return (f"NOT PRIVATE: the noise of {' and '.join(report['predictable_noise'])} was predictable, for tests "
                f"only. No epsilon holds for these {report['num_charges']} charges.")
    rows, notes = [("charges", *report["epsilon"], "ledger")], []
    rows += [(str(part["num_charges"]), *map(round_up, part["epsilon"].values()), part["path"])
             for part in report["ledgers"]]
    rows.append((str(report["num_charges"]), *map(round_up, report["epsilon"].values()), "all together"))
    for fork in report["forks"]:
        forked = sum(own > 0 for own in fork["own_charges"]) > 1
        notes.append(
            f"{' and '.join(fork['ledgers'])} are {'forks' if forked else 'copies'} of one run: they share "
            f"{fork['shared_charges']} charges, which are counted once, and have "
            f"{', '.join(map(str, fork['own_charges']))} of their own."
            + (" Both were continued, so both were released, and both are paid for." if forked else ""))
    lines = [f"Epsilon at delta {report['delta']:g} by accountant, {report['adjacency']}, of releases about the same "
             "records:"]
    if report["unit"] is not None:
        unknown = " and ".join(report["unit_unknown"])
        notes.insert(0, f"Protected is {report['unit']}." + (
            f" What {unknown} protects is not known without its config.json; the sum holds if it is the same."
            if unknown else ""))
    return "\n".join([*lines, *("".join(f"{cell:>13}" for cell in row[:-1]) + "  " + row[-1] for row in rows), *notes])


def render_tables(report: dict[str, Any]) -> str:
    """The dictionary of `privacy_report` as tables; numbers are rounded up, so that none promises too much."""
    lines = ["DataLens, one step: top_k {top_k}, batch_size {batch_size}, noise_stddev {noise_stddev:g}: l2 "
             "sensitivity {l2_sensitivity:.6g} ({adjacency}), noise multiplier {noise_multiplier_per_step:.6g}. "
             "delta {delta:g}.".format(**report)]

    def table(title, columns, rows):
        cells = [["accountant", *columns], *rows]
        lines.extend(["", title, *(f"{row[0]:<11}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in cells)])

    if "steps" in report:
        table(f"Steps that epsilon {report['epsilon_budget']:g} pays for, and the epsilon of that many:",
              ["steps", *(f"by {name}" for name in report["steps"])],
              [[name, str(count), *map(round_up, report["epsilon_of_steps"][name].values())]
               for name, count in report["steps"].items()])
    if "epsilon" in report:
        table(f"{report['num_steps']} steps:", ["epsilon"],
              [[name, round_up(value)] for name, value in report["epsilon"].items()])
    if "calibrated_noise_stddev" in report:
        table(f"Noise that brings {report['num_steps']} steps to epsilon {report['epsilon_budget']:g}:",
              ["noise_stddev"], [[name, "unreachable" if sigma is None else round_up(sigma)]
                                 for name, sigma in report["calibrated_noise_stddev"].items()])
    return "\n".join(lines)
