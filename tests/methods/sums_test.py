"""Sums under both neighbouring relations: sensitivities of whole runs, prices, and a number of records that stays."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from datalens_tf.accounting import accountants
from datalens_tf.accounting.accountants import round_up
from datalens_tf.auditing.verification import verify
from datalens_tf.data import datasets
from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.facts import DataFacts
from datalens_tf.mechanisms.base import ADJACENCIES
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding, RandomFourierFeatures
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods.registry import config_class, config_classes, synthesizer
from datalens_tf.methods.sum_questions import feature_batches
from tests.methods import datalens_plus_test, dp_merf_test
from tests.methods.conformance import PrivateSynthesizerConformance, UnlabelledRecordsConformance
from tests.training import tiny

ADDED = {"adjacency": "add-or-remove-one", "records_at_most": 30}
RUNS = {"embedding": dp_merf_test.CONFIG.replace(autoencoder_dim=5, **ADDED),
        **{name: datalens_plus_test.CONFIG.replace(**settings, **ADDED)
           for name, settings in datalens_plus_test.SETTINGS.items()}}
PARTS = pytest.mark.parametrize("name", ["embedding", "clusters", "prototypes", *(
    pytest.param(name, marks=pytest.mark.slow) for name in ("shared", "choice", "learned"))])


class TestAddedOrRemoved(UnlabelledRecordsConformance, PrivateSynthesizerConformance):
    CONFIG = dp_merf_test.CONFIG.replace(**ADDED)
    NUM_RECORDS = None
    FIRST_OF_ITS_FAMILY = False


def trained(config, folder, monkeypatch, released=None, leave_out=None):
    """A run, whose releases are drawn or given; mechanisms, exact sums and releases, in order."""
    found, replay = [], iter(released or ())

    def privatize(self, exact, noise, index, original):
        noisy = original(self, exact, noise, index)
        found.append((self, np.array(exact), next(replay) if released else noisy))
        return found[-1][2]

    data = tiny.dataset()
    kept = np.arange(20) != (20 if leave_out is None else leave_out)
    with monkeypatch.context() as patched:
        for kind in (MeanEmbedding, SecondMoment, CorrectCounts):
            patched.setattr(kind, "privatize", lambda *args, original=kind.privatize: privatize(*args, original))
        run = synthesizer(config.method)(config, run_dir=folder)
        run.fit_dataset(as_dataset(data.images[kept], data.labels[kept], 3, name="tiny"))
    return run, found


def _length(mechanism, change):
    """In units of the sensitivity; noise is larger on numbers of records, as if these were smaller."""
    if isinstance(mechanism, MeanEmbedding):
        change = change * 2.0**-24
        change[..., -1] *= mechanism.count_weight
    return np.linalg.norm(change)


@PARTS
def test_a_record_less_moves_each_release_by_its_sensitivity_at_most_and_shows_nowhere(tmp_path, monkeypatch, name):
    """As composition asks: later sums are compared where all earlier releases were the same."""
    monkeypatch.setattr(datasets.chunks, "__defaults__", (19,))  # All 20 records are two chunks, 19 are one.
    run, whole = trained(RUNS[name], tmp_path / "whole", monkeypatch)
    other, less = trained(RUNS[name], tmp_path / "less", monkeypatch, [noisy for *_, noisy in whole], leave_out=7)
    moved = [_length(mechanism, mine - theirs) / mechanism.l2_sensitivity
             for (mechanism, mine, _), (_, theirs, _) in zip(whole, less, strict=True)]
    assert max(moved) <= 1 and min(moved) > 0.01
    # The mechanisms are those that settings are priced by.
    makers = run.config.release_mechanisms()
    assert [mechanism for mechanism, *_ in whole] == [
        make(noise_multiplier=mechanism.noise_multiplier) for make, (mechanism, *_) in zip(makers, whole, strict=True)]
    # Public files say nothing of how many records there are.
    assert run.config == other.config
    mine, theirs = (json.loads(one.folder.statement_json.read_text()) for one in (run, other))
    names = {"run_id", "ledger_head"}
    assert {key: mine[key] for key in mine.keys() - names} == {key: theirs[key] for key in theirs.keys() - names}
    assert mine["num_records"] is None and mine["records_at_most"] == 30 and mine["private"]
    np.testing.assert_array_equal(run.sample(9, seed=0)[0], other.sample(9, seed=0)[0])
    assert _functions(run) == _functions(other)
    cards = [(one.export(tmp_path / f"export{number}") / "assets.extra" / "MODEL_CARD.md").read_text()
             for number, one in enumerate((run, other))]
    assert cards[0] == cards[1] and "at most 30 records" in cards[0] and "neighbours: add-or-remove-one" in cards[0]
    assert all(check.passed for check in verify(run.folder.path))


def _functions(run):
    """Names of the exported generator's functions, which TensorFlow numbers by all that a process did before."""
    saved = saved_model_pb2.SavedModel.FromString((run.folder.generator / "1" / "saved_model.pb").read_bytes())
    return [function.signature.name for function in saved.meta_graphs[0].graph_def.library.function]


def test_statements_name_their_neighbours_and_the_price_by_the_other_relation(tmp_path, monkeypatch):
    added, _ = trained(dp_merf_test.CONFIG.replace(**ADDED), tmp_path / "added", monkeypatch)
    statement, text = added.privacy_statement(), " ".join(added.folder.statement_text.read_text().split())
    assert statement["adjacency"] == "add-or-remove-one" and statement["epsilon"] <= 2.0
    weight = added.config.release_mechanisms()[0](noise_multiplier=1.0).count_weight
    mu = 2.0 / math.sqrt(1 + weight**2) / statement["noise_multiplier_per_step"]
    expected = accountants.epsilon(config_class("dp_merf")(noise_multiplier=1 / mu).step_event(), 1, 1e-5, "gdp")
    assert statement["other_adjacency"]["epsilon_by_accountant"]["gdp"] == pytest.approx(expected)
    assert statement["other_adjacency"]["is_guarantee"]
    for said in ("adding or removing one record changes", "Numbers of records have a weight",
                 "a bound of 30 on the number of records",
                 "(at most 30 records)", "That n is a public bound",
                 f"the same noise guarantees epsilon = {round_up(expected)} (gdp)"):
        assert said in text, said
    replaced, _ = trained(dp_merf_test.CONFIG, tmp_path / "replaced", monkeypatch)
    statement, text = replaced.privacy_statement(), " ".join(replaced.folder.statement_text.read_text().split())
    assert statement["other_adjacency"]["adjacency"] == "add-or-remove-one" and statement["num_records"] == 20
    assert "would cost epsilon = 1.3" in text and "comparison figure and no guarantee" in text
    assert "replacing one record changes" in text and "Public: the settings, the number of records," in text


def test_predictable_noise_has_no_price_by_any_relation(tmp_path, monkeypatch):
    run, _ = trained(dp_merf_test.CONFIG.replace(insecure_noise_seed=1), tmp_path, monkeypatch)
    assert run.privacy_statement()["other_adjacency"] is None and run.privacy_statement()["epsilon"] is None


def test_prices_by_both_relations_are_those_of_the_mechanisms():
    """Half of a candidate's votes, a root of two of products, up to two of embeddings: never beyond."""
    for adjacency in ADJACENCIES:
        given = ADDED | {"records_at_most": 60_000} if adjacency != "replace-one" else {}
        config = config_class("datalens_plus").for_budget(1.0).replace(
            image_shape=(28, 28, 1), num_classes=10, **given).resolved(60_000)
        other = next(name for name in ADJACENCIES if name != adjacency)
        for make in config.release_mechanisms():
            mechanism = make(noise_multiplier=1.0)
            ratio = mechanism.dp_event(other).noise_multiplier
            assert (2**0.5 - 1e-9 <= ratio <= 2) if other == "add-or-remove-one" else 0.5 <= ratio <= 0.5**0.5 + 1e-9


@pytest.mark.parametrize("method", sorted(name for name, kind in config_classes().items()
                                          if kind.adjacency.startswith("replace")))
def test_every_method_says_which_neighbours_it_supports(method):
    kind = config_class(method)
    if kind.ADJACENCIES == ("replace-one-user", "add-or-remove-one-user"):
        assert kind(adjacency="add-or-remove-one-user").adjacency == "add-or-remove-one-user"
    elif "add-or-remove-one" in kind.ADJACENCIES:
        assert kind(**ADDED).adjacency == "add-or-remove-one"
        if kind.OF_SUMS:
            with pytest.raises(InvalidArgumentError, match="Missing --records_at_most: name a public bound"):
                kind(adjacency="add-or-remove-one")
        with pytest.raises(InvalidArgumentError, match="records_at_most=30 to be none: under replace-one"):
            kind(records_at_most=30)
    else:
        with pytest.raises(InvalidArgumentError, match=f"'add-or-remove-one' to be {kind.adjacency} for {method}: "):
            kind(adjacency="add-or-remove-one")


def test_features_of_a_record_do_not_depend_on_its_place_among_others():
    """Else a record less would move all that come after it."""
    stream = np.random.default_rng(0)
    images, kept = stream.integers(0, 256, (1100, 8, 8, 1)).astype(np.uint8), np.arange(1100) != 3
    frequencies = RandomFourierFeatures(num_features=200, bandwidths=(2.0,), dimension=64, seed=0).frequencies()

    def features(images):
        return np.concatenate([rows for rows, *_ in feature_batches(
            as_dataset(images, np.arange(len(images)) % 2, 2),
            lambda chunk: RandomFourierFeatures.of(chunk, tf.constant(frequencies)), places_shift=True)])

    np.testing.assert_array_equal(features(images)[kept], features(images[kept]))


def test_what_follows_from_the_number_of_records_follows_from_the_bound():
    kind = config_class("datalens_plus")
    facts = DataFacts(num_records=1000, image_shape=(28, 28, 1), num_classes=10)
    config = kind.for_data(facts, 1.0, ADDED | {"records_at_most": 1000})
    config = config.replace(image_shape=(28, 28, 1), num_classes=10)
    assert config.known_records(7) == config.known_records(10**6) == 1000
    means = config.resolved(1000).release_mechanisms()[1](noise_multiplier=1.0)
    assert means.count_weight == 1.0  # A smaller one would drown the numbers of 100 records each.
    many = config.replace(records_at_most=60_000).resolved(60_000)
    assert 0.1 < many.release_mechanisms()[0](noise_multiplier=1.0).count_weight < 0.3
