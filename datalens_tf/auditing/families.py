"""All audits of each kind of run. What a kind is made of decides which audits it has.

| kind of run                                              | neighbours | repeated releases | canaries            |
|----------------------------------------------------------|------------|-------------------|---------------------|
| teachers whose votes TopAgg sums                         | yes        | of worst votes    | in votes, in a run  |
| sums released once (`ReleasingSynthesizer`)              | yes        | of a run's sums   | no                  |
| sums over sampled records (a class with a `learner_class`) | yes        | no                | in a run            |

Without records, an audit runs on random pictures, and says nothing about anybody. With records, it trains on them.
"""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from datalens_tf import _validate, rng
from datalens_tf.accounting import accountants
from datalens_tf.auditing import canaries, neighbours, releases, repeated, sampled
from datalens_tf.auditing.findings import Finding, report
from datalens_tf.classification.classifier import PrivateClassifier
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.config import RunConfig, VotingConfig
from datalens_tf.data.datasets import Dataset, as_dataset, with_data
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.methods import registry
from datalens_tf.methods.embedding import ReleasingSynthesizer
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.callbacks import Callback

_PICTURES = 60  # random pictures that an audit without records runs on
_ANY_SHAPE = (64, 64, 3)  # of pictures, where only the kind of a mechanism matters


def _unwatched(values: Sequence[Any], name: str) -> Sequence[Any]:
    """Returns the values; nobody is told."""
    del name
    return values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effort:
    """Amount of work in an audit, and who is told of it.

    Attributes:
      trials: releases in each of two worlds.
      num_canaries: largest number of canaries.
      confidence: of all statistical findings of an audit together.
      callbacks: told about training.
      watched: wraps what is repeated, and is told its name.
    """

    trials: int = 1000
    num_canaries: int = 1000
    confidence: float = 0.95
    callbacks: Sequence[Callback] = ()
    watched: Callable[[Sequence[Any], str], Any] = _unwatched

    def __post_init__(self) -> None:
        _validate.integer("trials", self.trials, at_least=8)
        _validate.integer("num_canaries", self.num_canaries, at_least=2)
        _validate.between("confidence", self.confidence, 0, 1, open_low=True, open_high=True)

    def share(self, parts: int) -> float:
        """Confidence of each of `parts` findings, so that all of them hold together with `confidence`."""
        return 1 - (1 - self.confidence) / parts


def kind_of(config: RunConfig) -> type[Any]:
    """The class that makes runs with these settings."""
    return PrivateClassifier if isinstance(config, ClassifierConfig) else registry.synthesizer(config.method)


def _audits(config: RunConfig) -> Callable[..., list[Finding]] | None:
    """All audits of the kind of run that these settings are for; None where there is none."""
    kind = kind_of(config)
    if issubclass(kind, ReleasingSynthesizer):
        return _of_one_shot_sums
    if hasattr(kind, "learner_class"):
        return _of_sampled_sums
    if not (isinstance(config, VotingConfig) and hasattr(config, "top_k")):
        return None
    known = config.replace(image_shape=config.image_shape or _ANY_SHAPE, noise_stddev=config.noise_stddev or 1.0)
    return _of_votes if isinstance(known.mechanism(), TopAgg) else None


def check(config: RunConfig) -> None:
    """Raises InvalidArgumentError where there is no audit for runs with these settings."""
    _validate.require(config.epsilon is not None, "epsilon", config.epsilon, "to be a claim that an audit can refute")
    if _audits(config) is None:
        able = [name for name, kind in registry.config_classes().items()
                if kind.adjacency != "none" and _audits(kind()) is not None]
        raise InvalidArgumentError(f"Expected a run of a method with an audit, {', '.join(able)}, or of classify, got "
                                   f"method={config.method!r}.")


def audit(config: RunConfig, effort: Effort = Effort(), *, records: Dataset | None = None,
          run_dir: str | os.PathLike | None = None) -> dict[str, Any]:
    """Audits runs with these settings; a JSON-able dictionary, see `findings.report`.

    Args:
      config: resolved settings; except for DataLens, those of the image are among them.
      effort: how much is done.
      records: to train an audited run on. The run is one more release of them. None audits on random pictures.
      run_dir: where that run goes; None for a temporary folder.

    Raises:
      InvalidArgumentError: there is no audit for such runs, or a value outside its domain.
    """
    check(config)
    _validate.require(records is None or records.units is None, "unit", getattr(config, "unit", None),
                      "to be none where an audit trains: canaries are single records")
    with _folder(run_dir) as folder:
        found = _known(_audits(config))(config, effort, records, folder)
    claimed = min(finding.claimed for finding in found if finding.quantity == "epsilon")
    return report(config, found, claimed, effort.confidence, canaries.PRIVACY_NOTE)


def _known(audits: Callable[..., list[Finding]] | None) -> Callable[..., list[Finding]]:
    return _validate.known("method", audits, "to have an audit")


@contextlib.contextmanager
def _folder(run_dir: str | os.PathLike | None) -> Iterator[pathlib.Path]:
    if run_dir is not None:
        yield pathlib.Path(run_dir)
        return
    with tempfile.TemporaryDirectory(prefix="datalens-audit-") as folder:
        yield pathlib.Path(folder) / "run"


def random_pictures(config: RunConfig, count: int = _PICTURES) -> Dataset:
    """A data set that is about nobody, of the shape and the classes that the settings know."""
    stream, shape = rng.stream(0, "audited pictures"), config.data.image_shape
    return as_dataset(stream.integers(0, 256, (count, *shape)).astype(np.uint8),
                      np.arange(count) % config.data.num_classes, config.data.num_classes, name=config.dataset,
                      classes=config.classes)


def _of_one_shot_sums(config: Any, effort: Effort, records: Dataset | None, folder: pathlib.Path) -> list[Finding]:
    """Neighbours, by mechanism and by what a run sums; and repeated releases."""
    private = records is not None
    dataset, others = repeated.worst_neighbours(records or random_pictures(config), config.adjacency)
    watched = repeated.watch(kind_of(config), config, dataset, others, folder)
    mechanisms = {type(pair.mechanism): pair.mechanism for pair in watched.pairs[0]}
    return [
        *(neighbours.audit_mechanism(mechanism) for mechanism in mechanisms.values()),
        neighbours.audit_pairs([pair for pairs in watched.pairs for pair in pairs],
                               f"What a run sums, on {len(watched.pairs)} neighbouring data sets", private),
        *repeated.audit_repeated(watched, config.delta, trials=effort.trials, confidence=effort.confidence,
                                 private=private, progress=lambda values: effort.watched(values, "two worlds"))]


def sampled_pairs(config: Any, pictures: Dataset) -> list[neighbours.Pair]:
    """Sums of a first step on some records, with and without a hostile one; see `sampled.hostile_pairs`."""
    kind = kind_of(config)
    seeded = with_data(config, pictures).replace(insecure_noise_seed=0)  # The same secrets in both worlds.

    def learner(dataset: Dataset) -> Any:
        built = kind(seeded)._networks(seeded) if isinstance(config, ClassifierConfig) else ()
        return kind.learner_class()(seeded, dataset, *built, noise_source(seeded))

    return sampled.hostile_pairs(learner, pictures)


def _of_sampled_sums(config: Any, effort: Effort, records: Dataset | None, folder: pathlib.Path) -> list[Finding]:
    """Neighbours, by mechanism and by what a step sums; and canaries in a run on records."""
    pairs = sampled_pairs(config, random_pictures(config))
    found = [neighbours.audit_mechanism(config.mechanism()),
             neighbours.audit_pairs(pairs, f"What a step sums of random pictures, with {len(pairs)} hostile records, "
                                           "each there or not, or, without sampling, replaced or not")]
    if records is not None:
        return [*found, sampled.audit_canaries(
            kind_of(config), config, records, folder, num_canaries=effort.num_canaries, confidence=effort.confidence,
            callbacks=effort.callbacks)]
    steps = _validate.known("num_steps", config.num_steps)
    claimed = accountants.epsilon(config.step_event(), steps, config.delta, config.accountant, config.adjacency)
    return [*found, Finding(audit=sampled.AUDIT, quantity="epsilon", lower_bound=0.0, claimed=claimed,
                            measured="Not looked for: that takes a run on records")]


def _of_votes(config: Any, effort: Effort, records: Dataset | None, folder: pathlib.Path) -> list[Finding]:
    """Neighbours; votes as bad as a record could make them, in many runs and in one; canaries in a run on records."""
    count = min(effort.num_canaries, config.num_teachers)
    names = iter(("two worlds", "one run with canaries"))
    parts = 2 if records is None else 4
    of_votes = releases.audit_releases(config, trials=effort.trials, num_canaries=count,
                                       confidence=1 - 2 * (1 - effort.share(parts)),
                                       progress=lambda values: effort.watched(values, next(names)))
    claimed, each, one = of_votes["claimed"], effort.share(parts), of_votes["one_run"]
    found = [
        neighbours.audit_mechanism(config.replace(num_teachers=max(2, config.num_teachers)).mechanism()),
        Finding(audit=repeated.AUDIT, quantity="epsilon", lower_bound=of_votes["many_runs"]["epsilon"],
                claimed=claimed["epsilon"], confidence=each, details=of_votes["many_runs"] | {"run": claimed},
                measured=f"Votes of one teacher that all change sign, in {effort.trials} runs in each of two worlds"),
        Finding(audit=canaries.AUDIT, quantity="epsilon", lower_bound=one["epsilon"], claimed=claimed["epsilon"],
                confidence=each, details=one,
                measured=f"{one['num_correct']} of {one['num_guesses']} guesses of {count} teachers' votes were right, "
                         "in one run")]
    if records is None:
        return found
    config = with_data(config, records)
    trained = canaries.audit_training(
        config, records, folder, num_canaries=count, confidence=1 - 2 * (1 - each), callbacks=effort.callbacks,
        options=PerformanceOptions(num_threads=os.cpu_count()), student=kind_of(config).student_class,
        progress=lambda values: effort.watched(values, "train again"))
    return [*found, *canaries.findings(trained, each)]
