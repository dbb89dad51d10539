"""PATE: a classifier that learns from noisy votes of teachers on public images (Papernot et al. 2017, 2018).

Teachers are support vector machines, each trained on its own partition of the sensitive records. They vote on public
queries, a mechanism of `mechanisms.gnmax` releases labels, and a student network learns from those alone. The price is
known before anything is trained: queries, answers, noise and the number of votes that depend on a record are settings.
Deviations from the papers:

- The guarantee does not depend on the votes. The papers' epsilons do, and are themselves private (`privacy.pate_rdp`).
- Confident- and Interactive-GNMax have a fixed number of answers, all charged. The papers charge only the answers that
  were given.
- Students learn from labelled queries only, by supervision. The papers' students learn from all queries, by virtual
  adversarial training.

Records may have budgets of their own: see `classification.budgets`. Then every budget has its own epsilon; the ledger
holds what the records with the largest budget pay.
"""

import dataclasses
import json
import os
import pathlib
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dp_accounting
import numpy as np

from datalens_tf import _files, _validate, rng
from datalens_tf.accounting import accountants
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.accounting.statement import Guarantee, make_statement
from datalens_tf.accounting.wording import render_text
from datalens_tf.classification import budgets as individual
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.data.datasets import Dataset, sound, to_unit, with_data
from datalens_tf.data.identity import Fingerprint, identity_of
from datalens_tf.data.partition import partition_indices, slot_shards
from datalens_tf.errors import BudgetExhaustedError, DataError
from datalens_tf.mechanisms.gnmax import (
    NO_ANSWER,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LabelVotes,
    LNMax,
    count_votes,
)
from datalens_tf.mechanisms.noise import InsecureSeededNoise, NoiseSource
from datalens_tf.training.run_folder import RunFolder, opened

if typing.TYPE_CHECKING:
    import tensorflow as tf

_MECHANISMS = {"gnmax": GNMax, "lnmax": LNMax, "confident_gnmax": ConfidentGNMax, "interactive_gnmax": InteractiveGNMax}

_ASSUMPTIONS = {
    "none": "Every record is in at most one partition, which depends only on the record's index and a public seed, "
            "never on labels, pixels or other records. Each teacher sees one partition and shares no state with "
            "another.",
    "upsampling": "A record is in as many partitions as it has votes, which depends on its public budget alone; which "
                  "partitions depends only on indices, public budgets and a public seed, never on labels, pixels or "
                  "other records. Each teacher sees one partition and shares no state with another.",
    "weighting": "Every record is in at most one partition, with records of the same public budget, and its teacher "
                 "has as many votes as that budget gives. The partition depends only on indices, public budgets and a "
                 "public seed, never on labels, pixels or other records. Each teacher shares no state with another.",
}
_SENSITIVITY = (
    "Sensitivity: replacing one record changes the answers of the teachers that it trained, which have at most "
    "{record_votes} of {num_votes} votes. Per query they leave one class and go to another at most, whatever the "
    "record is. The {num_queries_per_step} queries of a step, and the tests before the answers if there are any, are "
    "accounted as one joint release.",
    "Steps are composed adaptively: later steps may depend on everything released before.",
    "Public: the settings, the number of records, the list of classes, the image shape, the order of the records, that "
    "pixels are scaled by a fixed rule, and the images that teachers are asked about.",
    "Noise: {noise_source}. {noise_caveat}",
)
_BUDGETS = ("Each record's budget is public, belongs to the record's index, and does not change when the record is "
            "replaced. A record is protected by the epsilon of its own budget: {epsilon_by_budget_text}. The epsilon "
            "above is that of the largest budget.")
_RELEASED = {
    "gnmax": "The votes of {num_votes} for each class were released with Gaussian noise of standard deviation "
             "{noise_stddev:.6g}",
    "lnmax": "The votes of {num_votes} for each class were released with Laplace noise of scale {noise_scale:.6g}",
    "confident_gnmax": "The largest of {num_votes} votes was released with Gaussian noise of standard deviation "
                       "{threshold_noise_stddev:.6g}, and for at most {max_answers} queries the votes for each class, "
                       "with {noise_stddev:.6g}",
    "interactive_gnmax": "The largest surplus of {num_votes} votes over the student's predictions was released with "
                         "Gaussian noise of standard deviation {threshold_noise_stddev:.6g}, and for at most "
                         "{max_answers} queries the votes for each class, with {noise_stddev:.6g}",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateResult:
    """Results of a run.

    Attributes:
      student: the model, from images [B, H, W, C] in [0, 1] to logits [B, Y].
      labels: of the queries, int64 [Q], -1 for none.
      statement: the dictionary of `privacy.json`.
      folder: the run folder.
    """

    student: "tf.keras.Model"
    labels: np.ndarray
    statement: dict[str, Any]
    folder: pathlib.Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Deal of records to teachers, and its cost; a function of settings, budgets and the number of records alone.

    Attributes:
      config: resolved settings, noise_stddev and epsilon included.
      partitions: indices of each teacher's records.
      weights: each teacher's votes, int64 [T].
      groups: the records by budget.
    """

    config: PateClassifierConfig
    partitions: Sequence[np.ndarray]
    weights: np.ndarray
    groups: Sequence[individual.BudgetGroup]

    def mechanism(self, record_votes: int | None = None) -> LabelVotes:
        """The mechanism of every step, priced for records with this many votes, by default the most."""
        votes = max(group.record_votes for group in self.groups) if record_votes is None else record_votes
        return _mechanism(self.config, int(self.weights.sum()), votes)

    def event(self, record_votes: int | None = None) -> dp_accounting.DpEvent:
        """Cost of a step for records with this many votes; see `mechanism`."""
        return self.mechanism(record_votes).dp_event(self.config.queries_per_round)

    def epsilon(self, group: individual.BudgetGroup) -> float:
        """Epsilon of all steps, for the records with this budget."""
        return self.epsilon_after(group, self.config.rounds)

    def epsilon_after(self, group: individual.BudgetGroup, num_charges: int) -> float:
        """Epsilon of this many charges, for the records with this budget."""
        return accountants.epsilon(self.event(group.record_votes), num_charges, self.config.delta, self.accountant)

    def pays_for(self, num_charges: int) -> bool:
        """Whether every record's own budget pays for this many charges; the ledger knows only the largest budget."""
        return all(self.epsilon_after(group, num_charges) <= group.epsilon for group in self.groups)

    @property
    def accountant(self) -> str:
        """Accountant that measures the budget, which is filled in where nobody named one."""
        return _validate.known("accountant", self.config.accountant)


def make_plan(config: PateClassifierConfig, num_records: int, budgets: np.ndarray | None = None,
              slots: np.ndarray | None = None) -> Plan:
    """Deals records to teachers and calibrates the noise, so that no record pays more than its budget.

    Args:
      config: settings with num_classes.
      num_records: n.
      budgets: epsilon of each record, float [n], public, where individualization asks for them; else None.
      slots: slot, or unit, of each record; records that share one share a teacher. See `Dataset`.

    Raises:
      InvalidArgumentError: budgets are given without individualization, or the reverse, or are not valid budgets.
      BudgetExhaustedError: the noise that the settings name is too small for a budget.
      DataError: fewer records than teachers.
    """
    config, budgets = _with_budgets(config, num_records, budgets)
    votes = individual.votes_per_record(budgets, config.budget_precision)
    weights = np.ones(config.num_teachers, np.int64)
    partitions: Sequence[np.ndarray]
    if slots is not None and config.individualization != "none":
        raise DataError("Expected files of different names, and no unit, for budgets of single records: give every "
                        "file a name of its own.")
    if config.individualization == "upsampling":
        partitions = individual.upsampled_partitions(votes, config.num_teachers, config.partition_seed)
    elif config.individualization == "weighting":
        partitions, weights = individual.weighted_partitions(votes, config.num_teachers, config.partition_seed)
    elif slots is not None:
        partitions = slot_shards(slots, config.num_teachers, config.partition_seed)
    else:
        partitions = list(partition_indices(num_records, config.num_teachers, config.partition_seed))
    plan = Plan(config=config, partitions=partitions, weights=weights, groups=individual.budget_groups(budgets, votes))
    if config.noise_stddev is None:
        plan = dataclasses.replace(plan, config=config.replace(noise_stddev=_calibrated(plan)))
    for group in plan.groups:
        if not plan.epsilon(group) <= group.epsilon:
            raise BudgetExhaustedError(
                f"The privacy budget epsilon={group.epsilon:g} does not pay for num_queries={config.num_queries} with "
                f"noise_stddev={plan.config.noise_stddev:g}, which cost {round_up(plan.epsilon(group))}: use more "
                "noise or fewer queries, or leave noise_stddev out.")
    return plan


def split_queries(public: Dataset, config: PateClassifierConfig) -> tuple[np.ndarray, Dataset]:
    """Takes the queries from public records by a public random choice.

    Returns:
      Images [Q, H, W, C], whose labels are not used; and the other records, to test on.

    Raises:
      DataError: too few records.
    """
    if len(public) <= config.num_queries:
        raise DataError(f"Expected more public records than num_queries={config.num_queries}, got {len(public)}.")
    order = rng.stream(config.seed, "queries").permutation(len(public))
    asked, rest = np.sort(order[:config.num_queries]), np.sort(order[config.num_queries:])
    return public.images[asked], dataclasses.replace(public, images=public.images[rest], labels=public.labels[rest],
                                                     usable=None, users=None, slots=None, units=None)


def train_pate(config: PateClassifierConfig, dataset: Dataset, queries: np.ndarray, run_dir: str | os.PathLike, *,
               budgets: np.ndarray | None = None, counts: np.ndarray | None = None,
               progress: Callable[[Iterable], Iterable] = iter) -> PateResult:
    """Trains teachers and student and writes a run folder, or continues an interrupted run of the same settings.

    Args:
      config: settings; data-dependent ones are filled in.
      dataset: the sensitive records, in an order that does not depend on their content.
      queries: public images like those of the data set, [num_queries, H, W, C], in a public order.
      run_dir: gets config.json, ledger.jsonl, labels.npz (what was released), student.npz, privacy.json, privacy.txt,
        private/, and budgets.npz if there are any.
      budgets: as for `make_plan`.
      counts: result of `teacher_votes` on these queries, by teachers that were trained before by the same plan; None
        trains the teachers.
      progress: wraps the teachers' partitions, to show progress.

    Raises:
      DataLensError: settings, data or folder are invalid; nothing was charged, unless the message says so.
    """
    from datalens_tf.classification.student import save_student, train_student
    from datalens_tf.training.checkpoint import ReleaseStore
    from datalens_tf.training.classifier import predict_probabilities
    from datalens_tf.training.releases import warn_of_lost_steps

    if queries.shape != (config.num_queries, *dataset.image_shape):
        raise DataError(f"Expected queries of shape {[config.num_queries, *dataset.image_shape]}, got "
                        f"{list(queries.shape)}.")
    dataset = sound(dataset)
    config = with_data(config, dataset)
    slots = dataset.slots if dataset.units is None else dataset.units.of
    plan = make_plan(config, dataset.num_units, budgets, slots)
    config, mechanism, event = plan.config, plan.mechanism(), plan.event()
    noise = (mechanism.noise_class() if config.insecure_noise_seed is None
             else InsecureSeededNoise(config.insecure_noise_seed))
    files = RunFolder(run_dir)
    identity = identity_of(dataset, queries=Fingerprint(np.zeros(0), queries),
                           budgets=[dataclasses.astuple(group) for group in plan.groups])
    with opened(files, config, identity, event) as ledger:
        if budgets is not None:  # Public; a resumed run needs them.
            _files.atomic_write(files.path / "budgets.npz", _files.npz_bytes({"budgets": np.asarray(budgets)}))
        releases = ReleaseStore(files.releases)
        releases.check(ledger)
        num_burnt = ledger.num_charges - len(releases)

        def can_spend() -> bool:
            return ledger.can_spend(event) and plan.pays_for(ledger.num_charges + 1)

        if not len(releases) and not can_spend():  # Said now, not after the teachers are trained.
            raise BudgetExhaustedError(
                f"The privacy budget epsilon={ledger.epsilon_budget:g} pays for no answer: "
                f"{round_up(ledger.spent())} is spent after {num_burnt} charges, all of them lost when training was "
                "interrupted. Nothing more was charged. Train in another folder; what is spent there comes on top of "
                "this.")
        warn_of_lost_steps(ledger, event, num_burnt, len(releases), config.rounds)
        labels = np.full((config.rounds, config.queries_per_round), NO_ANSWER)
        parts = queries.reshape(config.rounds, -1, *queries.shape[1:])
        for number, part in enumerate(parts):
            predictions = None
            if config.aggregator == "interactive_gnmax" and number:
                student = train_student(queries[:labels[:number].size], labels[:number].ravel(), config)
                predictions = predict_probabilities(student, part)
            noisy = releases.load(number + 1)
            if noisy is None:
                if counts is None:
                    counts = teacher_votes(dataset, plan, queries, progress)
                if number and not can_spend():  # A crash burnt a charge: the remaining queries are not asked.
                    break
                charge = ledger.spend(event, step=number + 1)
                noisy = mechanism.privatize(np.split(counts, len(parts))[number], noise, charge, predictions)
                releases.store(number + 1, charge, noisy, ledger)
            labels[number] = mechanism.answers(noisy, predictions)
        labels = labels.ravel()
        _files.atomic_write(files.path / "labels.npz", _files.npz_bytes({"x": queries, "y": labels}))
        student = train_student(queries, labels, config)
        save_student(student, files.path / "student.npz")
        statement = _statement(plan, ledger, ledger.num_charges - len(releases), noise, dataset.num_units)
        _files.atomic_write(files.statement_text, render_text(statement))
        _files.atomic_write(files.statement_json, json.dumps(statement, indent=2) + "\n")
        files.sealed += (files.path / "labels.npz", files.path / "student.npz")
        files.seal()
    return PateResult(student=student, labels=labels, statement=statement, folder=files.path)


def teacher_votes(dataset: Dataset, plan: Plan, queries: np.ndarray, progress: Callable[[Iterable], Iterable] = iter
                  ) -> np.ndarray:
    """Trains the teachers one after the other and counts their votes on the queries: int64 [Q, Y]. PRIVATE."""
    pixels = to_unit(queries).reshape(len(queries), -1)
    answers = np.stack([_answers(dataset, indices, pixels) for indices in progress(plan.partitions)])
    return count_votes(answers, dataset.num_classes, plan.weights)


def _answers(dataset: Dataset, indices: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Classes that a teacher of these records gives to queries [Q, d]: int64 [Q], a function of these records alone."""
    from sklearn.svm import SVC

    if dataset.usable is not None and dataset.usable[indices].any():  # A filter acts inside a partition.
        indices = indices[dataset.usable[indices]]
    labels = dataset.labels[indices]
    if len(np.unique(labels)) == 1:  # A support vector machine refuses a single class.
        return np.full(len(queries), labels[0])
    return SVC(C=10.0).fit(to_unit(dataset.images[indices]).reshape(len(indices), -1), labels).predict(queries)


def _mechanism(config: PateClassifierConfig, num_votes: int, record_votes: int) -> LabelVotes:
    settings: dict[str, Any] = dict(
        num_votes=num_votes, num_classes=config.num_classes, noise_stddev=config.noise_stddev,
        record_votes=record_votes)
    if config.max_answers is not None:  # Only mechanisms that test before they answer have it.
        settings |= dict(threshold_noise_ratio=config.threshold_noise_ratio, vote_threshold=config.vote_threshold,
                         max_answers=config.max_answers // config.rounds)
    if config.aggregator == "interactive_gnmax":
        settings |= dict(min_confidence=config.min_confidence)
    return _MECHANISMS[config.aggregator](**settings)


def _with_budgets(config: PateClassifierConfig, num_records: int, budgets: np.ndarray | None
                  ) -> tuple[PateClassifierConfig, np.ndarray]:
    """The settings with the largest budget as epsilon, and every record's budget."""
    asked = config.individualization != "none"
    _validate.require(asked == (budgets is not None), "individualization", config.individualization,
                      "to be upsampling or weighting with budgets, and none without")
    if not asked:
        config = config.replace(epsilon=1.0 if config.epsilon is None else config.epsilon)
        return config, np.full(num_records, config.epsilon)
    budgets = np.asarray(budgets, np.float64)
    _validate.require(budgets.shape == (num_records,) and bool(np.all(np.isfinite(budgets) & (budgets > 0))), "budgets",
                      f"{budgets.dtype} {list(budgets.shape)}", f"to be {num_records} numbers > 0")
    largest = float(budgets.max())
    _validate.require(config.epsilon in (None, largest), "epsilon", config.epsilon,
                      f"to be none, or {largest:g}, the largest budget")
    return config.replace(epsilon=largest), budgets


def _calibrated(plan: Plan) -> float:
    """The smallest noise with which no group of records pays more than its budget."""
    config = plan.config

    def needed(group: individual.BudgetGroup) -> float:
        def event(stddev: float) -> dp_accounting.DpEvent:
            return dataclasses.replace(plan, config=config.replace(noise_stddev=stddev)).event(group.record_votes)

        return accountants.calibrate(event, config.rounds, group.epsilon, config.delta, plan.accountant, precision=1e-6)

    return max(map(needed, plan.groups))


def _statement(plan: Plan, ledger: PrivacyLedger, num_burnt: int, noise: NoiseSource, num_records: int
               ) -> dict[str, Any]:
    """`privacy.json`."""
    config, mechanism = plan.config, plan.mechanism()
    private = noise.is_secure
    # All records pay for burnt charges.
    by_budget = [dataclasses.asdict(group) | {
        "epsilon": plan.epsilon_after(group, ledger.num_charges) if private else None, "epsilon_budget": group.epsilon}
        for group in plan.groups]
    facts: dict[str, Any] = {
        "aggregator": config.aggregator, "num_teachers": config.num_teachers, "num_votes": mechanism.num_votes,
        "record_votes": mechanism.record_votes, "noise_stddev": config.noise_stddev,
        "num_queries_per_step": config.queries_per_round,
        "individualization": config.individualization, "epsilon_by_budget": by_budget,
    }
    if config.aggregator == "lnmax":
        facts["noise_scale"] = mechanism.dp_event(1).event.noise_multiplier * mechanism.record_votes
    if isinstance(mechanism, ConfidentGNMax):
        facts |= {"threshold_noise_stddev": mechanism.threshold_noise_ratio * mechanism.noise_stddev,
                  "max_answers": mechanism.max_answers}
    assumptions = [_ASSUMPTIONS[config.individualization], *_SENSITIVITY]
    if config.individualization != "none" and private:
        text = "; ".join(f"budget {row['epsilon_budget']:g}: {row['num_records']} records with {row['record_votes']} "
                         f"vote(s), epsilon = {round_up(row['epsilon'])}" for row in by_budget)
        assumptions.append(_BUDGETS.format(epsilon_by_budget_text=text))
    guarantee = Guarantee(
        event=plan.event(), facts=facts, assumptions=assumptions,
        released=f"{config.num_teachers} teachers labelled {{num_queries_per_step}} public images in each of "
                 f"{{num_steps}} steps. {_RELEASED[config.aggregator]}. The student learned from the public images and "
                 "these labels only.",
        seeds=f"seed {config.seed} for the choice of queries and the student, and seed {config.partition_seed} for the "
              "partitions", product="student, with the labels that it learned from,")
    return make_statement(config, guarantee, ledger, num_burnt, noise, num_records)
