"""Settings of a PATE classifier. Loads quickly: the command line reads its flags from here."""

import dataclasses
import json
import typing
from typing import Any

from datalens_tf import _files, _text, _validate
from datalens_tf.config import ACCOUNTANTS, check_classes, check_magnitudes
from datalens_tf.errors import InvalidArgumentError

AGGREGATORS = ("gnmax", "lnmax", "confident_gnmax", "interactive_gnmax")
INDIVIDUALIZATIONS = ("none", "upsampling", "weighting")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateClassifierConfig:
    """Everything that decides the privacy and the quality of a run.

    Validated at construction; `InvalidArgumentError` names the field. `to_json` and `from_json` are inverse.

    Attributes:
      dataset: name of the sensitive data.
      image_shape: (H, W, C); None until the data is known.
      num_classes: number of classes, public; None until the data is known.
      classes: names of the classes, which declares them public: records of other classes keep their place and
        contribute nothing. On the command line a number, names separated by commas, or a file with one name a line.
        None: the classes are those of the data set's public description, or read from the records, private as these
        are, and then taken to be public.
      aggregator: `gnmax`, `lnmax`, `confident_gnmax` or `interactive_gnmax`.
      num_teachers: teachers, one per partition of the sensitive records.
      num_queries: public images that teachers are asked to label; all are charged.
      max_answers: labels that teachers give at most, for confident_gnmax and interactive_gnmax; all are charged. None
        for half of num_queries.
      num_rounds: parts that the queries are asked in; with interactive_gnmax the student learns after each. Divides
        num_queries and max_answers. None for 4 with interactive_gnmax, else 1.
      noise_stddev: standard deviation of the noise on the votes for a class, in votes; None calibrates it to the
        budget.
      threshold_noise_ratio: standard deviation of the test's noise divided by noise_stddev.
      vote_threshold: fraction of all votes that the noisy largest number of votes must reach in the test, in [0, 1].
      min_confidence: the student's probability above which interactive_gnmax takes its own prediction, in [0, 1].
      individualization: how records get budgets of their own: `none`, `upsampling` or `weighting`.
      budget_precision: decimal places of those budgets that count.
      epsilon: the privacy budget; of the records with the largest one, where records have their own. None until those
        are known.
      delta: the privacy budget's other half.
      allow_large_delta: whether delta may be 10/n or more, for n records.
      accountant: which accountant the budget is measured with; None for gdp, or rdp with lnmax.
      student_steps, student_batch_size, student_learning_rate: of the student's training, and each round's; free in
        privacy.
      seed: seed of the choice of queries and of the student's weights and batches. Never of the privacy noise.
      partition_seed: public seed of the assignment of records to teachers.
      insecure_noise_seed: tests only: makes the privacy noise predictable and the run NOT PRIVATE.
    """

    method: str = "pate_classifier"
    dataset: str = "arrays"
    image_shape: tuple[int, int, int] | None = None
    num_classes: int | None = None
    classes: tuple[str, ...] | None = None
    aggregator: str = "confident_gnmax"
    num_teachers: int = 250
    num_queries: int = 1000
    max_answers: int | None = None
    num_rounds: int | None = None
    noise_stddev: float | None = None
    threshold_noise_ratio: float = 3.0
    vote_threshold: float = 0.6
    min_confidence: float = 0.9
    individualization: str = "none"
    budget_precision: int = 1
    epsilon: float | None = None
    delta: float = 1e-5
    allow_large_delta: bool = False
    accountant: str | None = None
    student_steps: int = 400
    student_batch_size: int = 64
    student_learning_rate: float = 1e-3
    seed: int = 0
    partition_seed: int = 0
    insecure_noise_seed: int | None = None

    ADJACENCY: typing.ClassVar[str] = "replace-one"
    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, vote_threshold, threshold_noise_ratio and the teachers' settings were not tuned, but tried on "
        "MNIST only, whose real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def __post_init__(self):
        v = _validate
        check_magnitudes(vars(self))
        v.require(self.method == "pate_classifier", "method", self.method, "== 'pate_classifier'")
        v.one_of("aggregator", self.aggregator, AGGREGATORS)
        v.one_of("individualization", self.individualization, INDIVIDUALIZATIONS)
        if self.image_shape is not None:
            object.__setattr__(self, "image_shape", tuple(self.image_shape))
        if self.accountant is None:
            object.__setattr__(self, "accountant", "rdp" if self.aggregator == "lnmax" else "gdp")
        if self.num_rounds is None:
            object.__setattr__(self, "num_rounds", 4 if self.aggregator == "interactive_gnmax" else 1)
        if self.max_answers is None and self.is_confident:
            object.__setattr__(self, "max_answers", max(self.num_rounds, self.num_queries // 2))
        v.one_of("accountant", self.accountant, ACCOUNTANTS)
        v.require(self.aggregator != "lnmax" or self.accountant in ("rdp", "pld"), "accountant", self.accountant,
                  "to be rdp or pld, which know the Laplace noise of lnmax")
        for name in ("num_teachers", "num_queries", "num_rounds", "student_steps", "student_batch_size"):
            v.integer(name, getattr(self, name), at_least=1)
        for name in ("num_queries", *(("max_answers",) if self.is_confident else ())):
            v.integer(name, getattr(self, name), at_least=1)
            v.require(getattr(self, name) % self.num_rounds == 0, name, getattr(self, name),
                      f"to be a multiple of num_rounds={self.num_rounds}")
        v.require(self.is_confident or self.max_answers is None, "max_answers", self.max_answers,
                  f"to be none: {self.aggregator} answers every query")
        for name in ("noise_stddev", "epsilon"):
            if getattr(self, name) is not None:
                v.positive(name, getattr(self, name))
        for name in ("threshold_noise_ratio", "student_learning_rate"):
            v.positive(name, getattr(self, name))
        for name in ("vote_threshold", "min_confidence"):
            v.between(name, getattr(self, name), 0, 1)
        v.between("delta", self.delta, 0, 1, open_low=True, open_high=True)
        v.boolean("allow_large_delta", self.allow_large_delta)
        for name in ("seed", "partition_seed", "budget_precision"):
            v.integer(name, getattr(self, name), at_least=0)
        if self.num_classes is not None:
            v.integer("num_classes", self.num_classes, at_least=2)
        if self.classes is not None:
            object.__setattr__(self, "classes", check_classes(self.classes))
        if self.insecure_noise_seed is not None:
            v.integer("insecure_noise_seed", self.insecure_noise_seed, at_least=0)

    @property
    def is_confident(self) -> bool:
        """Whether queries are tested before they are answered."""
        return self.aggregator in ("confident_gnmax", "interactive_gnmax")

    def replace(self, **changes: Any) -> "PateClassifierConfig":
        """A copy with some fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    def public(self) -> "PateClassifierConfig":
        """See `RunConfig.public`."""
        return dataclasses.replace(self, dataset=_text.without_folders(self.dataset))

    def to_json(self) -> str:
        """JSON text with one key per field."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "PateClassifierConfig":
        """Inverse of `to_json`; raises InvalidArgumentError on malformed text or unknown fields."""
        try:
            return cls(**_files.parse_json(text))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"Expected the JSON configuration of a PATE classifier: {error}.") from error
