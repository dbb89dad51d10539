"""Settings of a PATE classifier. Loads quickly: the command line reads its flags from here."""

import dataclasses
import typing

from datalens_tf import _validate
from datalens_tf.config import ACCOUNTANTS, DataConfig
from datalens_tf.settings import at_least, between, one_of, positive, setting

AGGREGATORS = ("gnmax", "lnmax", "confident_gnmax", "interactive_gnmax")
INDIVIDUALIZATIONS = ("none", "upsampling", "weighting")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateClassifierConfig(DataConfig):
    """Settings that decide the privacy and the quality of a PATE classifier's run."""

    method: str = "pate_classifier"
    aggregator: str = setting(
        "confident_gnmax", "How votes become a label, gnmax for example. It is one of "
        f"{', '.join(AGGREGATORS)}.", one_of(*AGGREGATORS))
    num_teachers: int = setting(250, "Teachers, one per partition of the sensitive records.", at_least(1))
    num_queries: int = setting(1000, "Public images to be labelled, all of them charged.", at_least(1))
    max_answers: int | None = setting(
        None, "Labels that teachers give at most, all of them charged. They are limited with confident_gnmax and "
        "interactive_gnmax. None means half of num_queries.", at_least(1))
    num_rounds: int | None = setting(
        None, "Parts that the queries are asked in. With interactive_gnmax the student learns after each. The number "
        "divides num_queries and max_answers. None means 4 with interactive_gnmax, else 1.", at_least(1))
    noise_stddev: float | None = setting(
        None, "Standard deviation of the noise on a class's votes. With none, it is calibrated to the budget.",
        positive)
    threshold_noise_ratio: float = setting(3.0, "Noise of the test, in noise_stddev.", positive)
    vote_threshold: float = setting(
        0.6, "Share of votes that a label needs, in [0, 1]. The noisy largest number of votes must "
        "reach it in the test.",
        between(0, 1))
    min_confidence: float = setting(
        0.9, "Confidence at which the student answers by itself. Above this probability, in [0, 1], interactive_gnmax "
        "takes the student's own prediction.", between(0, 1))
    individualization: str = setting(
        "none", f"Budgets of single records: {', '.join(INDIVIDUALIZATIONS)}.",
        one_of(*INDIVIDUALIZATIONS),
        group="budget")
    budget_precision: int = setting(1, "Decimal places of such budgets that count.", at_least(0), group="budget")
    epsilon: float | None = setting(
        None, "Privacy budget epsilon. Where records have budgets of their own, it is that of the records with the "
        "largest one.",
        positive, group="budget")
    delta: float = setting(1e-5, "Privacy budget delta.", between(0, 1, open_low=True, open_high=True), group="budget")
    allow_large_delta: bool = setting(False, "Permits a delta of 10/n or more, for n records.", group="budget")
    accountant: str | None = setting(
        None, "Accountant that measures the budget. None means gdp, or rdp with lnmax.", one_of(*ACCOUNTANTS),
        group="budget")
    student_steps: int = setting(
        400, "Steps of the student's training. Each round has as many; they are free in privacy.",
        at_least(1), group="student")
    student_batch_size: int = setting(64, "Queries in a batch of the student's training.", at_least(1), group="student")
    student_learning_rate: float = setting(1e-3, "Learning rate of the student's training.", positive, group="student")
    seed: int = setting(
        0, "Public seed, on which the privacy noise does not depend. It decides the choice of queries and the "
        "student's weights and batches.",
        at_least(0), group="data")
    partition_seed: int = setting(
        0, "Public seed of the assignment of records to teachers.", at_least(0), group="data")
    insecure_noise_seed: int | None = setting(
        None, "Makes the privacy noise predictable and the run NOT PRIVATE; for tests only.", at_least(0),
        group="budget")

    GROUP: typing.ClassVar[str] = "mechanism"
    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, vote_threshold, threshold_noise_ratio and the teachers' settings were not tuned, but tried on "
        "MNIST only, whose real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accountant is None:
            object.__setattr__(self, "accountant", "rdp" if self.aggregator == "lnmax" else "gdp")
        if self.num_rounds is None:
            object.__setattr__(self, "num_rounds", 4 if self.aggregator == "interactive_gnmax" else 1)
        if self.max_answers is None and self.is_confident:
            object.__setattr__(self, "max_answers", max(self.rounds, self.num_queries // 2))
        v = _validate
        v.require(self.aggregator != "lnmax" or self.accountant in ("rdp", "pld"), "accountant", self.accountant,
                  "to be rdp or pld, which know the Laplace noise of lnmax")
        v.require(self.is_confident or self.max_answers is None, "max_answers", self.max_answers,
                  f"to be none: {self.aggregator} answers every query")
        for name in ("num_queries", *(("max_answers",) if self.is_confident else ())):
            v.require(getattr(self, name) % self.rounds == 0, name, getattr(self, name),
                      f"to be a multiple of num_rounds={self.num_rounds}")

    @property
    def rounds(self) -> int:
        """Number of rounds, which is filled in where nobody gave one."""
        return _validate.known("num_rounds", self.num_rounds)

    @property
    def queries_per_round(self) -> int:
        """Number of queries that are released jointly."""
        return self.num_queries // self.rounds

    @property
    def budget(self) -> float:
        """The epsilon that a run keeps to; raises InvalidArgumentError where it is not known yet."""
        return _validate.known("epsilon", self.epsilon, "to be known before anything is priced")

    @property
    def is_confident(self) -> bool:
        """Whether queries are tested before they are answered."""
        return self.aggregator in ("confident_gnmax", "interactive_gnmax")
