"""The model card of an exported generator (after Mitchell et al., "Model Cards for Model Reporting", 2019)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from datalens_tf import __version__, _text
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.wording import caveat, counted, how_many

LICENSE = """\
The computation in this SavedModel was made by datalens_tf, under the Apache License, Version 2.0
(https://www.apache.org/licenses/LICENSE-2.0).

The weights were trained by whoever exported it, who decides under which terms they are handed out.
`datalens export --license_file FILE` puts those terms here.
"""

_USES = (
    "For: training and testing software and classifiers where real images may not be handed out; teaching; looking at "
    "what kind of images there are.",
    "Not for: decisions about the people or things in the real data; counting (classes are drawn as asked for, not as "
    "often as they are in the data); evidence that something is or is not in the data.")
_LIMITS = (
    "An image may show another class than its label says, or nothing that can be recognised. How often is what the "
    "utility above measures, as far as it was measured.",
    "What few records have in common is learned badly or not at all: privacy hides it. Groups that are rare in the "
    "data are served worst.",
    "What is biased in the real data is biased here.")


def render_card(statement: Mapping[str, Any], model: Mapping[str, Any], metrics: Mapping[str, Any] | None = None,
                images: str = "") -> str:
    """Markdown, in which the texts of statement, model and metrics are never markup.

    Args:
      statement: the privacy statement.
      model: the content of the export's `model.json`.
      metrics: the content of `metrics.json`, to tell what was measured on real records; None to leave it out.
      images: sentences that say what was put around the trained generator; empty for nothing.
    """
    # All texts, so that none is forgotten: names may come from the people who made the data.
    statement, model, metrics = (_text.everywhere(_text.markdown, value) for value in (statement, model, metrics))
    shape = "x".join(map(str, model["image_shape"]))
    sections = {
        "Guarantee": _guarantee(statement),
        "Intended use": _bullets(_USES),
        "Training data": (
            f"`{statement['dataset']}`, {how_many(statement)} {counted(statement)}, images of {shape}, "
            f"{model['num_classes']} classes: {', '.join(model['class_names'])}."),
        "Utility": _utility(metrics, model["class_names"]),
        "Limits": _bullets([*_LIMITS, *(statement.get("not_covered", []) if statement["private"] else [])]),
        "Files": (
            "`privacy.json` and `privacy.txt` are the privacy statement, `model.json` says what the generator takes, "
            "`LICENSE` under which terms it may be used. `SHA256SUMS` has the hash of every file; in the folder above, "
            "`sha256sum --check assets.extra/SHA256SUMS` compares them."),
    }
    title = f"# Model card: {statement['method']} on {statement['dataset']}"
    lead = (f"A generator of synthetic images: a class label goes in, a picture of {shape} comes out. Trained by the "
            f"method `{statement['method']}` of datalens_tf, exported by version {__version__}. {images}").rstrip()
    return "\n\n".join([title, lead, *(f"## {name}\n\n{text}" for name, text in sections.items())]) + "\n"


def _guarantee(statement: Mapping[str, Any]) -> str:
    if not statement["private"]:
        return "**None.** " + " ".join(statement.get("not_covered", []))
    protected = f"What is protected is {statement['unit']}. "
    others = ", ".join(f"{round_up(value)} ({name})" for name, value in statement["epsilon_by_accountant"].items())
    return (f"Differential privacy with epsilon = {round_up(statement['epsilon'])} and delta = {statement['delta']:g} "
            f"({statement['accountant']}; neighbours: {statement['adjacency']}), for the generator and for all that "
            f"is drawn from it, however much. {protected}Epsilon by accountant: {others}.{caveat(statement)} "
            "`privacy.txt` has the assumptions.")


def _utility(metrics: Mapping[str, Any] | None, class_names: Sequence[str]) -> str:
    """Accuracy overall and per class, of a classifier trained on synthetic images only."""
    utility = (metrics or {}).get("utility")
    if utility is None:
        return ("Not measured, or left out: `datalens evaluate` measures it on real records, which epsilon does not "
                "cover, and `datalens export --with_metrics` puts it here.")
    lines = [f"A classifier that was trained on synthetic images only is right on {utility['accuracy_mean']:.4f} of "
             f"{utility['num_test']} real test records of {utility['dataset']} (mean of {len(utility['per_seed'])} "
             "classifiers)."]
    if "real" in utility:
        lines[0] += f" One that was trained on real images is right on {utility['real']['accuracy']:.4f}."
    lines[0] += " These numbers were measured with real records and are not covered by epsilon."
    lines += ["", "| class | right, of its real test records | records |", "|---|---|---|"]
    for index, (name, row) in enumerate(zip(class_names, utility["confusion_matrix"])):
        share = row[index] / sum(row) if sum(row) else math.nan
        lines.append(f"| {name} | {share:.4f} | {round(sum(row) / len(utility['per_seed']))} |")
    return "\n".join(lines)


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
