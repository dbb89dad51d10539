"""Fed Avg GAN: a user changes the noisy sum by the clip norm at most, and the generator learns from the sum alone."""

import dataclasses

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.datasets import as_dataset
from datalens_tf.data.partition import user_indices
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.mechanisms.gaussian_sum import _STEPS, GaussianSum
from datalens_tf.mechanisms.noise import RoundedGaussianNoise, secret_stream
from datalens_tf.methods.critics import CriticTraining
from datalens_tf.methods.fed_avg_gan import FedAvgGanConfig, FederatedAverage
from datalens_tf.methods.federated import num_fakes
from datalens_tf.models.wasserstein import WassersteinCritic
from tests.methods.conformance import PrivateSynthesizerConformance
from tests.training import tiny

CONFIG = FedAvgGanConfig(
    num_users=4, sampling_probability=0.5, batch_size=3, critic_batch_size=3, critic_steps=2, num_steps=4,
    critic_filters=2, latent_dim=4, generator_filters=4, generator_units=8, epsilon=10.0, accountant="rdp")
RESOLVED = CONFIG.replace(image_shape=(8, 8, 1), num_classes=3, noise_multiplier=0.7)
KNOWN = RESOLVED.replace(insecure_noise_seed=0)  # The same users and batches again; noise is as ever.


def average(data, config=KNOWN):
    return FederatedAverage(config, data, user_indices(data, config.num_users, config.partition_seed),
                            RoundedGaussianNoise())


@pytest.mark.slow  # Its family's first class is quick.
class TestFedAvgGan(PrivateSynthesizerConformance):
    FIRST_OF_ITS_FAMILY = False  # DP-GAN is.
    CONFIG = CONFIG

    def test_the_price_is_that_of_poisson_sampled_users(self, run):
        statement = run.privacy_statement()
        accountant = dp_accounting.rdp.RdpAccountant()  # Its neighbours: one is added or removed.
        event = dp_accounting.GaussianDpEvent(run.config.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.5, event), 4)
        # From 0.6 on, theirs has looser bounds for some orders; tests of accountants pin the numbers.
        theirs, other = accountant.get_epsilon(1e-5), statement["other_adjacency"]
        assert 0.98 * theirs < other["epsilon_by_accountant"]["rdp"] <= theirs * (1 + 1e-9)
        assert 0.999 * 10 < statement["epsilon"] <= 10 and statement["num_charges"] == 4 and statement["is_guarantee"]
        assert (other["adjacency"], other["is_guarantee"]) == ("add-or-remove-one-user", False)
        text = " ".join(run.folder.statement_text.read_text().split())
        for fact in ("Adjacency: replace-one-user", "with their labels) been replaced by any other with as many images",
                     "The server is TRUSTED", "a draw that nobody sees but the server"):
            assert fact in text, fact

    def test_bytes_are_expected_ones_because_the_true_number_would_tell_how_many_took_part(self, run, tmp_path):
        weights = sum(np.prod(shape) for shape in WassersteinCritic((8, 8, 1), 3, filters=2).shapes)
        generator = FederatedAverage(RESOLVED, tiny.dataset(), [], RoundedGaussianNoise()).student.generator
        down, up = 4 * (weights + sum(np.prod(v.shape) for v in generator.trainable_variables)), 4 * weights
        assert run.privacy_statement()["communication"] == {
            "num_answers": 8, "down_bytes_per_answer": down, "up_bytes_per_answer": up, "warm_up_bytes": 0,
            "down_bytes": 8 * down, "up_bytes": 8 * up}

    def test_the_charge_is_on_disk_before_anybody_is_sampled_and_a_crash_burns_it(self, tmp_path, monkeypatch):
        class Crash(Exception):
            pass

        seen, sampled, privatize = [], FederatedAverage._sampled, GaussianSum.privatize

        def charged():
            return len(PrivacyLedger.read(tmp_path / "ledger.jsonl").charges)

        def watched_sampled(gan, step):
            seen.append(("sampled", charged()))
            return sampled(gan, step)

        def watched_privatize(mechanism, total, noise, index):
            seen.append(("noise", charged(), index))
            if seen.count(("noise", 3, 2)) and len(seen) == 6:
                raise Crash
            return privatize(mechanism, total, noise, index)

        monkeypatch.setattr(FederatedAverage, "_sampled", watched_sampled)
        monkeypatch.setattr(GaussianSum, "privatize", watched_privatize)
        data = tiny.dataset()
        with pytest.raises(Crash):
            self.make(tmp_path).fit(data.images, data.labels)
        statement = self.make(tmp_path).fit(data.images, data.labels).privacy_statement()
        assert seen == [event for charge in range(4) for event in (
            ("sampled", charge + 1), ("noise", charge + 1, charge))]
        # No snapshot before the crash: one is left of the four that the budget pays for.
        assert (statement["num_charges"], statement["num_burnt_charges"], statement["num_steps"]) == (4, 3, 1)
        assert statement["epsilon"] <= 10

    def test_more_users_than_records_are_refused(self, tmp_path):
        data = tiny.dataset()
        with pytest.raises(DataError, match="a record for each user, got 20 for num_users=21"):
            self.make(tmp_path / "run", num_users=21).fit(data.images, data.labels)
        assert not (tmp_path / "run").exists()


def test_a_user_changes_the_sum_by_its_own_clipped_vector():
    """Whatever is in it: in units of the grid, exactly; no longer than the clip norm, which users reach."""
    model = average(tiny.dataset(), KNOWN.replace(clip_norm=1e-3))
    whole = model.sum_of_changes([0, 1, 2, 3], 1)
    for user in range(4):
        alone, others = model.sum_of_changes([user], 1), [other for other in range(4) if other != user]
        np.testing.assert_array_equal(whole - model.sum_of_changes(others, 1), alone)
        assert 0.99 < np.linalg.norm(alone) / _STEPS <= 1
    assert not model.sum_of_changes([], 1).any()


def test_all_records_of_a_user_change_that_users_vector_only():
    data = tiny.dataset()
    images, labels = data.images.copy(), data.labels.copy()
    mine = user_indices(data, 4, 0)[1]
    images[mine], labels[mine] = 255 - images[mine], (labels[mine] + 1) % 3
    first, second = average(data), average(tiny.as_dataset(images, labels, 3, name="tiny"))
    for user in range(4):
        same = np.array_equal(first.sum_of_changes([user], 1), second.sum_of_changes([user], 1))
        assert same == (user != 1)


def test_without_noise_and_clipping_it_is_federated_averaging():
    """The mean of what users' optimizers change, computed here; divided by the expected number of users."""
    model = average(tiny.dataset(), KNOWN.replace(clip_norm=1e3))
    model._mechanism = dataclasses.replace(model._mechanism, noise_multiplier=0.0)
    model._sampled = lambda step: np.array([0, 3])
    before, pool = [weight.numpy() for weight in model.weights], model.student.pool(1, num_fakes(RESOLVED))
    training = CriticTraining(RESOLVED, WassersteinCritic((8, 8, 1), 3, filters=2))
    state = [*map(tf.constant, before), *(tf.zeros(weight.shape) for weight in 2 * before), tf.constant(0.0)]
    data, users = tiny.dataset(), user_indices(tiny.dataset(), 4, 0)
    changes = [training(state, data.images[users[user]], data.labels[users[user]], pool, 2,
                        secret_stream(KNOWN, "batches", user, 1)) for user in (0, 3)]
    model.train(1, 0)
    for weight, old, first, second in zip(model.weights, before, *changes):
        expected = ((first - old) + (second - old)).numpy() / (0.5 * 4)
        np.testing.assert_allclose(weight.numpy() - old, expected, atol=2e-3)  # The grid of a clip norm of 1,000.
        assert np.abs(expected).max() > 0


def test_the_noise_is_on_every_weight():
    """Of rounds without users, nothing else is left. One deviation in five is 7.6 standard errors of 722 numbers."""
    model = average(tiny.dataset())
    model._sampled, model.student.follow = lambda step: [], lambda *args: 0.0
    before = np.concatenate([weight.numpy().ravel() for weight in model.weights])
    for step in range(1, 41):
        model.train(step, step - 1)
    change = np.concatenate([weight.numpy().ravel() for weight in model.weights]) - before
    assert np.std(change) == pytest.approx(0.7 * CONFIG.clip_norm / (0.5 * 4) * np.sqrt(40), rel=0.2)


def test_the_generator_sees_the_noisy_sums_only(monkeypatch):
    """All records of all users are others, releases are the same: so is everything that is saved."""
    states = []
    for seed in range(2):
        monkeypatch.setattr(GaussianSum, "privatize", lambda mechanism, total, noise, index:
                            np.random.default_rng(index).normal(size=total.shape))
        model = average(tiny.dataset(seed=seed))
        losses = [model.train(step, step - 1) for step in (1, 2)]
        states.append([*losses, *(variable.numpy() for variable in model.variables())])
    for first, second in zip(*states, strict=True):
        np.testing.assert_array_equal(first, second)


def test_who_takes_part_is_secret_and_independent():
    """Every user in about half of 1,000 rounds: 160 of 1,000 are ten standard errors."""
    model = average(tiny.dataset(), RESOLVED)
    rounds = np.array([np.isin(range(4), model._sampled(step)) for step in range(1, 1001)])
    assert np.all(np.abs(rounds.mean(0) - 0.5) < 0.16) and np.all(np.abs(np.corrcoef(rounds.T) - np.eye(4)) < 0.3)
    assert not np.array_equal(rounds, [np.isin(range(4), model._sampled(step)) for step in range(1, 1001)])


def test_what_users_draw_is_secret_so_that_their_numbers_say_nothing():
    model = average(tiny.dataset(), RESOLVED)
    assert not np.array_equal(model.sum_of_changes([1], 1), model.sum_of_changes([1], 1))


def test_users_whom_the_data_name():
    data = tiny.dataset()
    named = as_dataset(data.images, data.labels, 3, users=np.repeat([7, 3], [2, 18]))
    model = average(named, KNOWN.replace(num_users=2))
    assert [len(indices) for indices in model._users] == [18, 2]
    assert model.sum_of_changes([1], 1).any()


@pytest.mark.parametrize("changes, message", [
    ({"num_users": 0}, "num_users=0 >= 1"), ({"sampling_probability": 0.0}, r"sampling_probability=0.0 in \(0, 1\]"),
    ({"sampling_probability": 1.5}, "sampling_probability=1.5"), ({"generator_steps": 0}, "generator_steps=0 >= 1"),
    ({"accountant": "gdp"}, "accountant='gdp' to be one of rdp, pld"), ({"clip_norm": -1.0}, "clip_norm=-1.0 > 0"),
    ({"warmup_steps": 3}, "Expected settings of fed_avg_gan, got warmup_steps")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        CONFIG.replace(**changes)
    assert "\n" not in str(caught.value)
