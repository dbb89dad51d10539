"""Owners who send sums with shares of the noise: what adds up, what is refused, and who drops out when."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import Charge, PrivacyLedger
from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import ActorError, BudgetExhaustedError, DataError, InvalidArgumentError
from datalens_tf.events import DiscreteGaussianDpEvent
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.discrete_gaussian import SLACK, DiscreteGaussianNoise
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding, RandomFourierFeatures
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods import sum_questions
from datalens_tf.methods.registry import config_class
from datalens_tf.training import sum_owners
from datalens_tf.training.classifier import QuickClassifier
from datalens_tf.training.sum_owners import Draw, Ready, Share, SumOwner, SumOwners
from tests.training import tiny

CONFIG = config_class("dp_merf")(
    dataset="tiny", num_features=40, bandwidths="2", epsilon=2.0, accountant="rdp", num_owners=3, image_shape=(8, 8, 1),
    num_classes=3).resolved(50)
PARTS = [tiny.dataset(count, seed=count) for count in (20, 13, 17)]
WHOLE = as_dataset(np.concatenate([part.images for part in PARTS]), np.concatenate([part.labels for part in PARTS]), 3,
                   name="tiny")
FREQUENCIES = RandomFourierFeatures(num_features=40, bandwidths=(2.0,), dimension=64, seed=0).frequencies()
EMBEDDINGS = sum_questions.Embeddings(features=sum_questions.FeatureMap(frequencies=FREQUENCIES), num_rows=3)
MECHANISM = CONFIG.release_mechanisms()[0](noise_multiplier=CONFIG.noise_multiplier)
UNIT = CONFIG.mechanism().dp_event()
CHARGE = Charge(index=0, step=1, event=UNIT)


def joined(folder, config=CONFIG, parts=PARTS):
    owners = SumOwners.here(config, parts)
    owners.open(config, folder, config.mechanism().dp_event())
    return owners


def ledger(folder, owner):
    return PrivacyLedger.read(folder / str(owner) / "ledger.jsonl")


@pytest.fixture
def silent_noise(monkeypatch):
    monkeypatch.setattr(DiscreteGaussianNoise, "draw", lambda self, shape, stddev, index: np.zeros(shape))


def test_shares_without_their_noise_are_the_single_process_sums_to_the_bit(tmp_path, silent_noise):
    owners, random = joined(tmp_path), np.random.default_rng(0)
    centres = random.random((3, 16))
    directions = np.linalg.qr(random.normal(size=(64, 64)))[0][:5]
    clusters = sum_questions.Points(square=1, centres=random.random((3, 64)), directions=directions,
                                    nearest_to=random.normal(size=(3, 2, 5)), less=random.normal(size=(6, 5)))
    judges = [QuickClassifier((8, 8, 1), 3, seed).weights() for seed in range(2)]
    z = CONFIG.noise_multiplier
    squares = SecondMoment(clip_norm=2.0, noise_multiplier=z, discrete=True)
    for number, (mechanism, question) in enumerate([
            (MECHANISM, EMBEDDINGS),
            (MECHANISM, sum_questions.Means(points=sum_questions.Points(square=2), clip=3.0, num_rows=3)),
            (MECHANISM, sum_questions.Means(points=clusters, clip=3.0, num_rows=6)),
            (squares, sum_questions.Squares(points=sum_questions.Points(square=2, centres=centres), num_rows=3)),
            (squares, sum_questions.Squares(points=dataclasses.replace(clusters), num_rows=6)),
            (squares, sum_questions.ImageSquares()),
            (CorrectCounts(num_candidates=2, noise_multiplier=50.0, discrete=True),
             sum_questions.Votes(classifiers=judges, data=CONFIG.data))]):
        folder = tmp_path / str(number)
        owners.close()
        owners = joined(folder)  # With a budget of its own.
        unit = DiscreteGaussianDpEvent(mechanism.noise_multiplier)
        total = owners.total(mechanism, owners.answer(mechanism, question), Charge(index=0, step=1, event=unit))
        np.testing.assert_array_equal(total, question.answer(mechanism, WHOLE))


@pytest.mark.parametrize("tolerance,silent", [(0, ()), (1, ()), (1, (2,)), (2, (0, 1))])
def test_the_total_noise_is_what_is_promised(tmp_path, tolerance, silent, monkeypatch):
    """Its variance is that of so many shares, which is never below the promise; a third more or less is noticed."""
    config = CONFIG.replace(owner_tolerance=tolerance, num_features=4000)
    owners = joined(tmp_path, config)
    question = dataclasses.replace(EMBEDDINGS, features=sum_questions.FeatureMap(
        frequencies=np.repeat(FREQUENCIES, 100, 0)))
    for number in silent:
        monkeypatch.setattr(owners._channel._owners[number], "draw", gone)
    ask = owners.answer(MECHANISM, question)
    found = owners.total(MECHANISM, ask, CHARGE)
    exact = sum(question.answer(MECHANISM, part) for number, part in enumerate(PARTS) if number not in silent)
    honest = 3 - len(silent)
    expected = MECHANISM.stddev * (1 + SLACK) * math.sqrt(honest / (3 - tolerance))
    assert expected >= MECHANISM.stddev
    noise = (found - exact).ravel()
    assert np.all(noise == np.rint(noise)) and noise.size > 12_000
    squares = np.square(noise / expected).sum()
    low, high = stats.chi2.ppf([5e-8, 1 - 5e-8], noise.size)
    assert low < squares < high and high < noise.size * 1.1 and low > noise.size * 0.9
    assert stats.kstest(noise / expected, "norm").pvalue > 1e-7


def gone(*args):
    raise ActorError("gone")


def test_an_owner_that_is_not_ready_costs_nothing(tmp_path, monkeypatch):
    owners = joined(tmp_path)
    monkeypatch.setattr(owners._channel._owners[1], "prepare", gone)
    with pytest.raises(ActorError, match="Owners 1 did not report ready. Nothing was charged"):
        owners.answer(MECHANISM, EMBEDDINGS)
    assert [ledger(tmp_path, number).num_charges for number in range(3)] == [0, 0, 0]


def test_an_owner_that_is_silent_burns_the_charge_unless_that_is_tolerated(tmp_path, monkeypatch):
    owners = joined(tmp_path / "strict")
    ask = owners.answer(MECHANISM, EMBEDDINGS)
    monkeypatch.setattr(owners._channel._owners[1], "draw", gone)
    with pytest.raises(ActorError, match="2 of 3 owners sent their shares, 3 are needed: 1 did not. The charge"):
        owners.total(MECHANISM, ask, CHARGE)
    assert [ledger(tmp_path / "strict", number).num_charges for number in range(3)] == [1, 0, 1]
    # Asked again in the same round, it answers, and the others send what they stored, at no charge.
    monkeypatch.undo()
    owners.total(MECHANISM, ask, CHARGE)
    assert [ledger(tmp_path / "strict", number).num_charges for number in range(3)] == [1, 1, 1]
    # In another round all would have to pay again, which their budgets do not allow.
    with pytest.raises(BudgetExhaustedError):
        owners.total(MECHANISM, owners.answer(MECHANISM, EMBEDDINGS), CHARGE)


def test_an_owner_that_is_started_again_sends_the_same_share(tmp_path):
    owners = joined(tmp_path)
    ask = owners.answer(MECHANISM, EMBEDDINGS)
    draw = Draw(attempt=ask.attempt, unit=UNIT, count=1, step=1)
    first = owners._channel._owners[0].draw(ask, draw)
    owners.close()
    again = joined(tmp_path)._channel._owners[0].draw(ask, draw)
    np.testing.assert_array_equal(first.values, again.values)
    assert ledger(tmp_path, 0).num_charges == 1


def test_a_charge_without_its_share_is_burnt_for_that_owner(tmp_path, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    owners = joined(tmp_path)
    ask = owners.answer(MECHANISM, EMBEDDINGS)
    monkeypatch.setattr(DiscreteGaussianNoise, "draw", killed)
    with pytest.raises(KeyboardInterrupt):
        owners.total(MECHANISM, ask, CHARGE)
    monkeypatch.undo()
    assert ledger(tmp_path, 0).num_charges == 1  # Before the noise.
    with pytest.raises(BudgetExhaustedError):
        owners.total(MECHANISM, ask, CHARGE)


def test_a_ledger_that_was_lost_is_missed(tmp_path):
    owners = joined(tmp_path)
    owners.total(MECHANISM, owners.answer(MECHANISM, EMBEDDINGS), CHARGE)
    owners.close()
    (tmp_path / "1" / "ledger.jsonl").unlink()
    with pytest.raises(Exception, match="ledger.jsonl is missing"):
        joined(tmp_path)


def _sent(**changes):
    return lambda share: dataclasses.replace(share, **{name: make(share) for name, make in changes.items()})


@pytest.mark.parametrize("change,message", [
    (_sent(values=lambda share: share.values[:-1]), r"Owner 1 sent values of shape \(2, 41\), not \(3, 41\)"),
    (_sent(values=lambda share: share.values[:1, :1]), r"values of shape \(1, 1\)"),  # numpy would spread it.
    (_sent(values=lambda share: share.values.astype(float)), "values of type float64, not int64"),
    (_sent(values=lambda share: share.values.tolist()), "values of type list"),
    (_sent(values=lambda share: share.values + 2**50), "values beyond .*, which its records and its noise do not"),
    (_sent(values=lambda share: np.full_like(share.values, -2**63)), "values beyond"),
    (_sent(attempt=lambda share: "0" * 32), "a share of another round"),
    (_sent(owner=lambda share: 0), "what is no share of its own"),
    (lambda share: share.values, "what is no share of its own")])
def test_what_no_honest_owner_sends_is_refused(tmp_path, monkeypatch, change, message):
    owners = joined(tmp_path)
    liar = owners._channel._owners[1]
    monkeypatch.setattr(liar, "draw", lambda *args, original=liar.draw: change(original(*args)))
    ask = owners.answer(MECHANISM, EMBEDDINGS)
    with pytest.raises(ActorError, match=message):
        owners.total(MECHANISM, ask, CHARGE)


@pytest.mark.parametrize("ready", [
    lambda ask: Ready(owner=1, attempt=ask.attempt, shape=(3, 40)),
    lambda ask: Ready(owner=1, attempt="", shape=(3, 41)),
    lambda ask: Ready(owner=0, attempt=ask.attempt, shape=(3, 41)), lambda ask: None])
def test_who_is_ready_for_something_else_is_refused(tmp_path, monkeypatch, ready):
    owners = joined(tmp_path)
    monkeypatch.setattr(owners._channel._owners[1], "prepare", ready)
    with pytest.raises(ActorError, match="Owner 1 reported ready for something else"):
        owners.answer(MECHANISM, EMBEDDINGS)


def test_a_share_of_an_earlier_round_is_refused(tmp_path, monkeypatch):
    config = CONFIG.replace(epsilon=20.0)
    owners = joined(tmp_path, config)
    liar, kept = owners._channel._owners[1], []
    monkeypatch.setattr(liar, "draw", lambda *args, original=liar.draw: (kept.append(original(*args)), kept[0])[1])
    owners.total(MECHANISM, owners.answer(MECHANISM, EMBEDDINGS), CHARGE)
    with pytest.raises(ActorError, match="Owner 1 sent a share of another round"):
        owners.total(MECHANISM, owners.answer(MECHANISM, EMBEDDINGS), CHARGE)


class TestOwnersDoNotTrustTheDriver:
    def owner(self, tmp_path):
        owners = joined(tmp_path)
        return owners._channel._owners[0], owners.answer(MECHANISM, EMBEDDINGS)

    def test_noise_is_what_is_charged(self, tmp_path):
        owner, ask = self.owner(tmp_path)
        for unit, count in ((DiscreteGaussianDpEvent(2 * UNIT.noise_multiplier), 1), (UNIT, 2)):
            with pytest.raises(InvalidArgumentError, match="which is charged for"):
                owner.draw(ask, Draw(attempt=ask.attempt, unit=unit, count=count, step=1))
        assert ledger(tmp_path, 0).num_charges == 0

    @pytest.mark.parametrize("of", [
        lambda unit: dp_accounting.SelfComposedDpEvent(unit, 0),
        lambda unit: dp_accounting.SelfComposedDpEvent(unit, 1),
        lambda unit: dp_accounting.SampledWithoutReplacementDpEvent(10**9, 1, unit),
        lambda unit: dp_accounting.PoissonSampledDpEvent(1e-9, unit)])
    def test_the_price_is_of_the_noise_alone(self, tmp_path, of):
        """Not what the driver says that it is."""
        owner, ask = self.owner(tmp_path)
        with pytest.raises(InvalidArgumentError, match="to be DiscreteGaussianDpEvent"):
            owner.draw(ask, Draw(attempt=ask.attempt, unit=of(UNIT), count=1, step=1))
        with pytest.raises(InvalidArgumentError, match="count=0"):
            owner.draw(ask, Draw(attempt=ask.attempt, unit=UNIT, count=0, step=1))
        assert ledger(tmp_path, 0).num_charges == 0

    def test_sums_get_the_noise_of_their_own_mechanism(self, tmp_path, silent_noise):
        """Those of one question are not released with the noise of another."""
        owner, ask = self.owner(tmp_path)
        other = CorrectCounts(num_candidates=1, noise_multiplier=MECHANISM.noise_multiplier, discrete=True)
        judge = [QuickClassifier((8, 8, 1), 3, 0).weights()]
        changed = dataclasses.replace(
            ask, mechanism=other, question=sum_questions.Votes(classifiers=judge, data=CONFIG.data))
        share = owner.draw(changed, Draw(attempt=ask.attempt, unit=UNIT, count=1, step=1))
        assert share.values.shape == (1,)
        np.testing.assert_array_equal(share.values, changed.question.answer(other, PARTS[0]))

    def test_mechanisms_are_known_ones_with_their_own_sensitivity(self, tmp_path):
        owner, ask = self.owner(tmp_path)
        forged = dataclasses.replace(MECHANISM)
        forged.__dict__["sensitivity"] = lambda adjacency: 1e-9  # As an unpickled one may come.
        assert owner._checked(dataclasses.replace(ask, mechanism=forged)).l2_sensitivity == 2.0
        forged.__dict__["count_weight"] = -1.0
        refused = [
            (dataclasses.replace(ask, mechanism=forged), "count_weight=-1"),
            (dataclasses.replace(ask, mechanism=object()), "to release sums"),
            (dataclasses.replace(ask, question=lambda *args: 0), "to release sums"),
            (dataclasses.replace(ask, mechanism=dataclasses.replace(MECHANISM, discrete=False)), "discrete noise"),
            (dataclasses.replace(ask, mechanism=MeanEmbedding(
                noise_multiplier=9.0, discrete=True, adjacency="add-or-remove-one")), "to be replace-one"),
            (dataclasses.replace(ask, attempt="../../x"), "hexadecimal digits")]
        for asked, message in refused:
            with pytest.raises(InvalidArgumentError, match=message):
                owner.prepare(asked)
            with pytest.raises(InvalidArgumentError, match=message):
                owner.draw(asked, Draw(attempt=asked.attempt, unit=UNIT, count=1, step=1))

    def test_the_budget_is_its_own(self, tmp_path):
        owner, ask = self.owner(tmp_path)
        owner.draw(ask, Draw(attempt=ask.attempt, unit=UNIT, count=1, step=1))
        again = dataclasses.replace(ask, attempt="f" * 32)
        with pytest.raises(BudgetExhaustedError):
            owner.draw(again, Draw(attempt="f" * 32, unit=UNIT, count=1, step=1))


def test_a_replaced_record_moves_one_share_by_the_sensitivity_at_most(tmp_path, silent_noise):
    images, labels = PARTS[1].images.copy(), PARTS[1].labels.copy()
    images[4], labels[4] = 255 - images[4], (labels[4] + 1) % 3
    shares = []
    for number, part in enumerate((PARTS[1], as_dataset(images, labels, 3, name="tiny"))):
        owners = joined(tmp_path / str(number), parts=[PARTS[0], part, PARTS[2]])
        ask = owners.answer(MECHANISM, EMBEDDINGS)
        draw = Draw(attempt=ask.attempt, unit=UNIT, count=1, step=1)
        shares.append([owner.draw(ask, draw).values for owner in owners._channel._owners])
    moved = [np.linalg.norm(mine - theirs) / 2.0**24 for mine, theirs in zip(*shares)]
    assert moved[0] == moved[2] == 0 and 0.5 < moved[1] <= MECHANISM.l2_sensitivity


def test_shares_that_would_not_add_up_are_refused_before_anything_is_charged(tmp_path):
    config = CONFIG.replace(num_owners=3, epsilon=20.0)
    owners = joined(tmp_path, config)
    votes = sum_questions.Votes(classifiers=[QuickClassifier((8, 8, 1), 3, 0).weights()], data=CONFIG.data)
    with pytest.raises(InvalidArgumentError, match="nearly a discrete Gaussian: take fewer owners"):
        owners.answer(CorrectCounts(num_candidates=1, noise_multiplier=1.0, discrete=True), votes)
    assert ledger(tmp_path, 0).num_charges == 0


def test_owners_whose_records_do_not_go_together_are_refused():
    with pytest.raises(DataError, match="tiny: owner 1 has num_classes 4, owner 0 has 3"):
        SumOwners.here(CONFIG, [PARTS[0], dataclasses.replace(PARTS[1], num_classes=4), PARTS[2]])
    with pytest.raises(InvalidArgumentError, match="num_owners=3 to be 2"):
        SumOwners.here(CONFIG, PARTS[:2])
    with pytest.raises(InvalidArgumentError, match="{owner}, the owner's number"):
        SumOwners.by_ray(CONFIG, options=None)


def test_a_private_number_of_records_is_not_told(tmp_path):
    config = config_class("dp_merf")(
        dataset="tiny", num_features=40, bandwidths="2", epsilon=2.0, accountant="rdp", num_owners=3,
        image_shape=(8, 8, 1), num_classes=3, adjacency="add-or-remove-one", records_at_most=30_000).resolved(30_000)
    assert SumOwner(0).take(PARTS[0], config.publishes_num_records)["num_records"] is None
    owners = joined(tmp_path, config)
    assert owners.num_records == [30_000] and owners.num_units == 30_000
    mechanism = config.release_mechanisms()[0](noise_multiplier=config.noise_multiplier)
    assert 0 < mechanism.count_weight < 1  # Numbers have noise of their own.
    total = owners.total(mechanism, owners.answer(mechanism, EMBEDDINGS), Charge(
        index=0, step=1, event=config.mechanism().dp_event()))
    assert total.shape == (3, 41)


def test_messages_hold_no_records():
    assert [field.name for field in dataclasses.fields(Ready)] == ["owner", "attempt", "shape"]
    assert [field.name for field in dataclasses.fields(Share)] == ["owner", "attempt", "values"]
    event = Draw(attempt="", unit=UNIT, count=3, step=1).event
    assert event == dp_accounting.SelfComposedDpEvent(UNIT, 3)
    assert accountants.noise_multiplier(event) == CONFIG.noise_multiplier
    assert sum_owners._MECHANISMS == (CorrectCounts, MeanEmbedding, SecondMoment)
