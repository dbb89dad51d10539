"""Every audit of every family on real records, and every control that must be caught: a table. NOT PRIVATE.

    python run_scripts/studies/audits.py --output_dir OUT [--dataset mnist] [--epsilons 1 10] [--families NAME ...]
        [--audits neighbours repeated canaries chain] [--settings '{"num_steps": 40}']

Families are the methods that `datalens audit` takes, and `classify`. For each family, each epsilon, and each audit that
the family has, there is a row for the code as it is, and one for each control: noise that is off or halved, a
sensitivity that is halved, batch normalisation, a lost charge. A row is written to `OUT/audits.csv` as soon as it is
known, and is not computed again. The runs in `OUT` learned from records: never share them.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import shutil
import time
from unittest import mock

import numpy as np
import tensorflow as tf
from rows import Rows

from datalens_tf.auditing import canaries, families, neighbours, repeated, sampled
from datalens_tf.auditing.findings import Finding
from datalens_tf.auditing.verification import verify
from datalens_tf.classification import networks
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.data.datasets import with_data
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.noise import NoiseSource, RoundedGaussianNoise, noise_source
from datalens_tf.methods import registry
from datalens_tf.models import places
from datalens_tf.models.critic import Critic

CHECKPOINTS = pathlib.Path(__file__).parents[2] / "checkpoints"
COLUMNS = ("family", "dataset", "epsilon", "audit", "control", "quantity", "lower_bound", "claimed", "confidence",
           "caught", "seconds", "measured")
FEW = 400  # records that neighbouring sums are compared on


class LessNoise(NoiseSource):
    """A part of the noise that is asked for."""

    is_secure, description, caveat = False, "too little", "none"

    def __init__(self, share, source=None):
        self._share, self._source = share, source or RoundedGaussianNoise()

    def draw(self, shape, stddev, index):
        return self._source.draw(shape, self._share * stddev, index) if self._share else np.zeros(shape)


class HalvedSensitivity:
    """A mechanism that scales its noise to half of the sensitivity, and is charged as if it did not."""

    def __init__(self, mechanism):
        self._mechanism = mechanism

    def privatize(self, sums, noise, index):
        return self._mechanism.privatize(sums, LessNoise(0.5, noise), index)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--families", nargs="+", default=None, help="by default all")
    parser.add_argument("--audits", nargs="+", default=list(AUDITS), choices=list(AUDITS))
    parser.add_argument("--trials", type=int, default=8000, help="releases in each of two worlds")
    parser.add_argument("--num_canaries", type=int, default=1000)
    parser.add_argument("--confidence", type=float, default=0.999999, help="of repeated releases")
    parser.add_argument("--canary_confidence", type=float, default=0.999,
                        help="of canaries, whose bound cannot be surer than delta allows")
    parser.add_argument("--settings", type=json.loads, default={}, help="of the families' runs, as JSON")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    rows = Rows(args.output_dir / "audits.csv", COLUMNS, COLUMNS[:5])
    records = load_dataset(args.dataset)
    for name, kind in all_families().items():
        if args.families is not None and name not in args.families:
            continue
        for epsilon in args.epsilons:
            config = settings(kind, args, epsilon, records)
            for audit in args.audits:
                folder = args.output_dir / f"{name}_eps{epsilon:g}_{audit}"
                for control, compute in AUDITS[audit](config, records, args, folder):
                    add(rows, name, config, audit, control, compute)
    print(rows.path.read_text(encoding="utf-8"))


def all_families():
    """Settings of each family, by its name."""
    able = {}
    for name, kind in registry.config_classes().items():
        with contextlib.suppress(InvalidArgumentError):
            families.check(kind())
            able[name] = kind
    return able | {"classify": ClassifierConfig}


def settings(kind, args, epsilon, records):
    """Resolved settings, for this budget."""
    config = (kind(epsilon=epsilon, dataset=args.dataset) if kind is ClassifierConfig else
              registry.preset(args.dataset, epsilon, kind.method))
    return with_data(config.replace(**args.settings), records).resolved(len(records))


def add(rows, family, config, audit, control, compute):
    """Computes a finding and writes it, unless it is known."""
    told = {"family": family, "dataset": config.dataset, "epsilon": f"{config.epsilon:g}", "audit": audit,
            "control": control}
    if told in rows:
        return
    start = time.monotonic()
    found = compute()
    rows.add(told | {
        "quantity": found.quantity, "lower_bound": f"{found.lower_bound:.4f}", "claimed": f"{found.claimed:.4f}",
        "confidence": found.confidence or "exact", "caught": found.caught,
        "seconds": f"{time.monotonic() - start:.0f}", "measured": found.measured})
    print(*told.values(), found.quantity, found.lower_bound, found.claimed, "CAUGHT" if found.caught else "ok",
          flush=True)


def neighbours_rows(config, records, args, folder):
    """Sums of neighbouring data, by the mechanism and by what is trained."""
    pictures = few(records)
    if hasattr(families.kind_of(config), "learner_class"):
        def pairs():
            return [neighbours.worst_pair(config.mechanism()), *families.sampled_pairs(config, pictures)]
    elif hasattr(config, "num_teachers"):
        def pairs():
            return [neighbours.worst_pair(config.mechanism())]
    else:
        def pairs():
            return [pair for found in watched(config, pictures, folder).pairs for pair in found]
    def exact(halved=False):
        found = pairs()
        if halved:
            found = [pair._replace(mechanism=HalvedSensitivity(pair.mechanism)) for pair in found]
        return neighbours.audit_pairs(found, f"{len(found)} pairs of exact sums", private=True)

    yield "none", exact
    yield "halved sensitivity", lambda: exact(halved=True)
    if hasattr(families.kind_of(config), "learner_class"):
        yield "batch normalisation", lambda: with_batch_normalisation(exact)


def with_batch_normalisation(compute):
    """The result where a batch's images are normalised together, and the checks that refuse this are off."""
    def normalised(critic, images):
        mean, variance = tf.nn.moments(images, 0)
        return layers(critic, (images - mean) / tf.sqrt(variance + 1e-3))

    class OfTheBatch(networks.PerExampleGradients):
        def __call__(self, images, labels, *masks):
            return super().__call__((images - images.mean(0)) / (images.std(0) + 0.03), labels, *masks)

    layers = Critic._layers
    with mock.patch.object(Critic, "_layers", normalised), mock.patch.object(
            places, "same_anywhere", return_value=True), mock.patch.object(
                networks, "same_anywhere", return_value=True), mock.patch.object(
                    networks, "PerExampleGradients", OfTheBatch):
        return compute()


def repeated_rows(config, records, args, folder):
    """Repeated releases, for families that release once."""
    if hasattr(config, "num_teachers") or hasattr(families.kind_of(config), "learner_class"):
        return
    kept = []

    def mu(share):
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
            kept.append(watched(config, records, folder))
        noise = noise_source(config) if share == 1 else LessNoise(share)
        return repeated.audit_repeated(dataclasses.replace(kept[0], noise=noise), config.delta, trials=args.trials,
                                       confidence=args.confidence, private=True)[0]

    yield "none", lambda: mu(1)
    yield "half the noise", lambda: mu(0.5)


def canaries_rows(config, records, args, folder):
    """Canaries in a run, for families that have many steps."""
    def found(share):
        place, noise = folder.with_name(f"{folder.name}_{share:g}"), noise_source(config) if share else LessNoise(0)
        shutil.rmtree(place, ignore_errors=True)
        if hasattr(config, "num_teachers"):
            count = min(args.num_canaries, config.num_teachers)
            trained = canaries.audit_training(config, records, place, num_canaries=count, noise=noise,
                                              confidence=1 - 2 * (1 - args.canary_confidence))
            return canaries.findings(trained, args.canary_confidence)[0]
        return sampled.audit_canaries(families.kind_of(config), config, records, place, noise=noise,
                                      num_canaries=args.num_canaries, confidence=args.canary_confidence)

    if hasattr(config, "num_teachers") or hasattr(families.kind_of(config), "learner_class"):
        yield "none", lambda: found(1)
        if config.epsilon == 1:  # So few canaries cannot show much above 5.
            yield "noise off", lambda: found(0)


def chain_rows(config, records, args, folder):
    """`datalens verify` of a run, and of the same run without its last charge."""
    def failed(lost):
        run = finished_run(config, few(records), folder)
        if lost:
            run = shutil.copytree(run, folder.with_name(folder.name + "_lost"), dirs_exist_ok=True)
            ledger = run / "ledger.jsonl"
            ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))
        checks = verify(run)
        count = sum(check.passed is False for check in checks)
        return Finding(audit="chain", measured=f"{count} of {len(checks)} checks of verify failed", claimed=0.0,
                       quantity="failed checks", lower_bound=float(count))

    yield "none", lambda: failed(False)
    yield "lost charge", lambda: failed(True)


AUDITS = {"neighbours": neighbours_rows, "repeated": repeated_rows, "canaries": canaries_rows, "chain": chain_rows}


def few(records):
    """The first records."""
    return dataclasses.replace(records, images=records.images[:FEW], labels=records.labels[:FEW])


def watched(config, records, folder):
    """A run that releases once, in a folder that is kept."""
    shutil.rmtree(folder, ignore_errors=True)
    dataset, others = repeated.worst_neighbours(records, config.adjacency)
    return repeated.watch(families.kind_of(config), config, dataset, others, folder)


def finished_run(config, records, folder):
    """A released checkpoint of the method and this budget, or a quick run on some records."""
    for place in CHECKPOINTS.glob("*/config.json"):
        stored = json.loads(place.read_text())
        if all(stored.get(name) == getattr(config, name) for name in ("method", "dataset", "epsilon")):
            return place.parent
    if not (folder / "privacy.json").exists():
        quick = {"num_steps": 3, "fit_steps": 2, "warmup_teacher_steps": 1, "num_teachers": 20}
        config = config.replace(**{name: value for name, value in quick.items() if hasattr(config, name)
                                   and any(field.name == name for field in dataclasses.fields(config))})
        families.kind_of(config)(config, run_dir=folder).fit_dataset(records)
    return folder


if __name__ == "__main__":
    main()
