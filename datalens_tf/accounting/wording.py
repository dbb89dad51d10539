"""The privacy statement in words: as a page of text, and as the clauses that reports and commands print."""

import textwrap
from collections.abc import Mapping
from typing import Any

from datalens_tf.accounting import accountants

_REPLACED, _ABSENT = "been replaced by any other", "been absent, or been added"
# Adjacency -> what might have happened to the protected unit.
_CHANGES = {"replace-one": _REPLACED, "add-or-remove-one": _ABSENT,
            "replace-one-user": f"{_REPLACED} with as many images",  # How many images each user has is public.
            "add-or-remove-one-user": _ABSENT, "none": ""}  # Runs that are not private have none.


def render_text(statement: dict[str, Any]) -> str:
    """Renders a statement, which `make_statement` made, as prose for people who were not there."""
    s = statement
    released = s.get("released") or (
        f"{s['num_teachers']} teacher networks were trained on disjoint parts of the data, and the generator learned "
        f"only from their noisy votes: {s['num_steps']} steps of {s['batch_size']} images each, with Gaussian noise of "
        f"standard deviation {s['noise_stddev']:g} votes on every coordinate. A step has sensitivity "
        f"{s['l2_sensitivity']:.6g} and noise multiplier {s['noise_multiplier_per_step']:.6g}. {s['num_charges']} "
        f"steps were charged to the privacy budget; {s['num_burnt_charges']} of them never reached the generator "
        "because the run was interrupted.")
    head = _guarantee(s) if s["private"] else _no_guarantee(s)
    sections = [*head, ("What was released", [released]), ("Seeds", [s["seeds"]])]
    if s["private"]:
        sections += [("Assumptions", s["assumptions"])]
        if s.get("settings_chosen"):  # Older statements lack this entry.
            sections += [("Settings chosen by looking at data", [s["settings_chosen"]])]
        sections += [("Not covered", s["not_covered"])]
    if s.get("software"):
        checked = " `datalens verify` checks this statement against the ledger of what was released."
        sections += [("Software", [f"{s['software']}.{checked if s['private'] else ''}"])]
    blocks = [f"{s['title']}: {s['method']} on {s['dataset']} ({how_many(s)} {counted(s)})"]
    for title, items in sections:
        bullets = [_wrap(text, "- " if len(items) > 1 else "") for text in items]
        blocks.append("\n".join([title, "-" * len(title), *bullets]))
    return "\n\n".join(blocks) + "\n"


def how_many(s: Mapping[str, Any]) -> str:
    """The number of records in a statement, in words where it is private."""
    return str(s["num_records"]) if s["num_records"] is not None else f"at most {s['records_at_most']}"


def counted(s: Mapping[str, Any]) -> str:
    """The word for what the number of records in a statement counts."""
    return "units" if s.get("unit_setting") else "records"


def _if_published(s: Mapping[str, Any]) -> str:
    """The caveat on an add-or-remove guarantee of a run that publishes its number of records; empty for others."""
    if not s["adjacency"].startswith("add-or-remove") or s["num_records"] is None:
        return ""
    return (" This run publishes how many there are, which such neighbours differ in, and so guarantees them nothing: "
            "read epsilon as a comparison figure, for what anybody learns beyond that number.")


def _cheapest(other: Mapping[str, Any], accountant: str) -> tuple[str, float]:
    """The price for other neighbours by the run's accountant or, where this has none, by the one that has the least."""
    prices: dict[str, float] = other["epsilon_by_accountant"]
    name = accountant if accountant in prices else min(prices, key=lambda name: prices[name])
    return name, prices[name]


def _for_others(s: Mapping[str, Any]) -> str:
    """The price of the same noise under the other relation, where a sensitivity is known for it."""
    other = s.get("other_adjacency")
    if other is None or not s["private"]:
        return ""
    name, epsilon = _cheapest(other, s["accountant"])
    price = f"{accountants.round_up(epsilon)} ({name})"
    if other["is_guarantee"]:
        change = " (with as many images)" if other["adjacency"] == "replace-one-user" else ""
        return f" Adjacency {other['adjacency']}{change}: the same noise guarantees epsilon = {price}."
    return (f" Adjacency {other['adjacency']}: the same noise would cost epsilon = {price}, a comparison figure and no "
            "guarantee, as this run publishes its number of records.")


def neighbours(s: Mapping[str, Any]) -> str:
    """The change that a guarantee is about, as a clause: one record had been replaced by any other."""
    return f"{s['unit']} had {_CHANGES[s['adjacency']]}"


def guaranteed(s: Mapping[str, Any]) -> tuple[str, float] | None:
    """Neighbours and the epsilon that a private run guarantees them; None where its epsilon is a comparison figure."""
    if not _if_published(s):
        return s["adjacency"], s["epsilon"]
    other = s.get("other_adjacency")
    if other is None or not other["is_guarantee"]:
        return None
    return other["adjacency"], _cheapest(other, s["accountant"])[1]


def caveat(s: Mapping[str, Any]) -> str:
    """Sentences on what a run's epsilon does not promise, and what holds instead; empty where it is a guarantee."""
    return _if_published(s) and _if_published(s) + _for_others(s)


def audience(s: Mapping[str, Any]) -> str:
    """Says with whom what a private run released may be shared, by its epsilon and delta: our advice, and no theorem.

    The page on epsilon (docs/explanation/epsilon.md) has the same advice.
    """
    known = s["num_records"] if s["num_records"] is not None else s["records_at_most"]
    bound = guaranteed(s)
    if bound is None:
        return "with nobody who may not see the records: epsilon is a comparison figure, and no guarantee"
    if s["delta"] * known >= 1:
        return "with nobody who may not see the records: delta is no smaller than 1/n"
    for most, whom in ((1, "with anybody, for most data"), (3, "with partners under a contract"),
                       (10, "with few people under a contract")):
        if bound[1] <= most:
            return whom
    return "with nobody who may not see the records: so large an epsilon promises next to nothing"


def meaning(s: dict[str, Any]) -> str:
    """A paragraph on what the epsilon of a statement means."""
    product = "generator, and all data drawn from it," if s.get("product") is None else s["product"]
    return (
        f"The released {product} is (epsilon, delta)-differentially private with epsilon = "
        f"{accountants.round_up(s['epsilon'])} and delta = {s['delta']:g}. Had {s['unit']} "
        f"{_CHANGES[s['adjacency']]}, every outcome would have been at most e^epsilon times as likely, up to an "
        f"additive delta. Adjacency: {s['adjacency']}. The budget was epsilon = {s['epsilon_budget']:g} by the "
        f"accountant {s['accountant']}.{_if_published(s)}{_for_others(s)}")


def _guarantee(s: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The sections that state epsilon."""
    table = [f"{name}: epsilon = {accountants.round_up(value)} ({_note(name, s)}{_default(name, s)})"
             for name, value in s["epsilon_by_accountant"].items()]
    # Older statements lack this entry.
    beside_n = [s["delta_and_n"]] if s.get("delta_and_n") else []
    return [("Guarantee", [" ".join([meaning(s), *beside_n])]),
            (f"Epsilon by accountant, at delta = {s['delta']:g}", table)]


def _no_guarantee(s: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The section that says there is none."""
    return [("No guarantee", [
        "Nothing that this run produced is differentially private, and no epsilon applies to it. Noise: "
        f"{s['noise_source']}. Do not share the outputs if the data are sensitive."])]


def _note(name: str, s: dict[str, Any]) -> str:
    """Says how an accountant found its epsilon."""
    accountant = accountants.registered(name)
    in_samples = s["adjacency"].startswith("replace") and s.get("sampling_probability", 1) < 1
    return (in_samples and accountant.note_on_samples) or accountant.note


def _default(name: str, s: dict[str, Any]) -> str:
    """Marks the accountant that the budget is measured with."""
    return "; used for the budget" if name == s["accountant"] else ""


def _wrap(text: str, bullet: str) -> str:
    """Wraps a paragraph, indenting the lines after a bullet."""
    return textwrap.fill(text, 100, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False)
