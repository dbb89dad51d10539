"""Federated GS-WGAN: nothing but noisy answers leaves a user, and only a user's own answers depend on its records."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import optimize, stats

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.datasets import as_dataset
from datalens_tf.data.partition import user_indices
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.mechanisms.gaussian_sum import _STEPS
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from datalens_tf.mechanisms.sanitized_gradients import SanitizedGradients
from datalens_tf.methods.fed_gs_wgan import FederatedGsWgan, FedGsWganConfig, Users
from tests.methods.conformance import PrivateSynthesizerConformance
from tests.training import tiny

CONFIG = FedGsWganConfig(
    num_users=4, users_per_round=3, batch_size=3, critic_batch_size=3, critic_steps=2, warmup_steps=2, num_steps=4,
    critic_filters=2, latent_dim=4, generator_filters=4, generator_units=8, epsilon=10.0)
RESOLVED = CONFIG.replace(image_shape=(8, 8, 1), num_classes=3, noise_multiplier=0.7)


def gan(data, config=RESOLVED):
    return FederatedGsWgan(config, data, user_indices(data, config.num_users, config.partition_seed),
                           RoundedGaussianNoise())


class TestFedGsWgan(PrivateSynthesizerConformance):
    CONFIG = CONFIG
    FIRST_OF_ITS_FAMILY = False

    def test_a_run_costs_each_user_its_own_answers_and_no_more(self, run):
        """Against the Gaussian mechanism's exact delta, computed here: 4 answers, whatever the number of users."""
        statement = run.privacy_statement()
        mu = math.sqrt(4) * 2 * 1.0 * math.sqrt(3) / statement["noise_stddev"]

        def excess(epsilon):
            delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
            return delta - 1e-5

        assert statement["epsilon"] == pytest.approx(optimize.brentq(excess, 0, 100), rel=1e-6)
        assert 0.999 * 10 < statement["epsilon"] <= 10 and statement["num_charges"] == 4
        assert set(statement["epsilon_by_accountant"]) == {"classic_rdp", "rdp", "pld", "gdp"}

    def test_the_statement_is_about_users_and_the_server(self, run):
        statement, text = run.privacy_statement(), " ".join(run.folder.statement_text.read_text().split())
        assert statement["unit"].startswith("one user") and "Adjacency: replace-one-user" in text
        for fact in ("Had one user (all the images that the user has, with their labels) been replaced by any other "
                     "with as many images", "who the users are and how many records each has",
                      "The server is not trusted", "nothing is gained by sampling", "People who are several users"):
            assert fact in text, fact
        assert "one image" not in text and "picked" not in text

    def test_bytes_are_counted(self, run):
        pool, images, labels, gradients = 2 * 3 * 64, 3 * 64, 3 * 2, 3 * 64 * 4  # 8 bits, 8 bits, 16 bits, float32.
        assert run.privacy_statement()["communication"] == {
            "num_answers": 16, "down_bytes_per_answer": pool + images + labels, "up_bytes_per_answer": gradients,
            "warm_up_bytes": 4 * pool, "down_bytes": 4 * pool + 16 * (pool + images + labels),
            "up_bytes": 16 * gradients}

    def test_a_pass_is_charged_on_disk_before_its_first_answer_and_burnt_by_a_crash(self, tmp_path, monkeypatch):
        class Crash(Exception):
            pass

        seen, answer, privatize = [], Users.answer, SanitizedGradients.privatize

        def charged():
            return len(PrivacyLedger.read(tmp_path / "ledger.jsonl").charges)

        def watched_answer(users, user, request, step, charge):
            seen.append(("answer", user, charge, charged()))
            return answer(users, user, request, step, charge)

        def watched_privatize(mechanism, clipped, noise, index):
            seen.append(("noise", index, charged()))
            if index == 4 * 2 + 1:  # Of the third pass.
                raise Crash
            return privatize(mechanism, clipped, noise, index)

        monkeypatch.setattr(Users, "answer", watched_answer)
        monkeypatch.setattr(SanitizedGradients, "privatize", watched_privatize)
        data = tiny.dataset()
        with pytest.raises(Crash):
            self.make(tmp_path).fit(data.images, data.labels)
        statement = self.make(tmp_path).fit(data.images, data.labels).privacy_statement()
        # Nobody answered twice for a charge, and the pass that was interrupted answered in part.
        assert seen == [event for charge, users in enumerate((4, 4, 2, 4)) for user in range(users) for event in (
            ("answer", user, charge, charge + 1), ("noise", 4 * charge + user, charge + 1))]
        # Three passes before the crash and no snapshot: one is left of the four that the budget pays for.
        assert (statement["num_charges"], statement["num_burnt_charges"], statement["num_steps"]) == (4, 3, 1)
        assert statement["epsilon"] <= 10 and statement["communication"]["num_answers"] == 4

    def test_users_whom_the_data_name(self, tmp_path):
        data = tiny.dataset()
        named = as_dataset(data.images, data.labels, 3, users=np.array(list("cabbbbcccccccccccccc")))
        run = self.make(tmp_path / "run", num_users=None, num_steps=1).fit_dataset(named)
        assert run.config.num_users == 3 and "dealing" not in run.privacy_statement()["seeds"]
        assert run.privacy_statement()["communication"]["num_answers"] == 3
        with pytest.raises(DataError, match="num_users=4 to be 3, the number of users whom the data name"):
            self.make(tmp_path / "other").fit_dataset(named)
        assert not (tmp_path / "other").exists()

    def test_more_users_than_records_are_refused(self, tmp_path):
        data = tiny.dataset()
        with pytest.raises(DataError, match="a record for each user, got 20 for num_users=21"):
            self.make(tmp_path / "run", num_users=21).fit(data.images, data.labels)
        assert not (tmp_path / "run").exists()


def trained(monkeypatch, data, passes=2):
    """A gan after passes with the same releases whatever users say, what users wanted to say, and the losses."""
    said = {}

    def released(mechanism, clipped, noise, index):
        said[index] = clipped
        return np.random.default_rng(index).normal(size=clipped.shape)

    monkeypatch.setattr(SanitizedGradients, "privatize", released)
    model = gan(data)
    model.warm_up(lambda: False)
    return model, said, [model.train(step, step - 1) for step in range(1, passes + 1)]


@pytest.fixture(name="usual", scope="module")
def fixture_usual():
    with pytest.MonkeyPatch.context() as monkeypatch:
        return trained(monkeypatch, tiny.dataset())


def test_all_records_of_a_user_change_that_users_answers_only(monkeypatch, usual):
    """Given what was released: what others answer, and their discriminators, are the same to the last bit."""
    data, user = tiny.dataset(), 1
    images, labels = data.images.copy(), data.labels.copy()
    mine = user_indices(data, 4, 0)[user]
    images[mine], labels[mine] = 255 - images[mine], (labels[mine] + 1) % 3
    model, said, losses = trained(monkeypatch, tiny.as_dataset(images, labels, 3, name="tiny"))
    mechanism = gan(data)._mechanism
    assert set(said) == set(range(8)) and losses == usual[2]
    for index, clipped in said.items():
        if index % 4 != user:
            np.testing.assert_array_equal(clipped, usual[1][index])
        else:
            change = np.linalg.norm(clipped.astype(np.float64) - usual[1][index]) / _STEPS * CONFIG.clip_norm
            assert 0 < change <= mechanism.l2_sensitivity == 2 * math.sqrt(3)
    changed = np.zeros(4, bool)
    for mine, theirs in zip(model.users.critics.variables(), usual[0].users.critics.variables(), strict=True):
        changed |= np.any((mine.numpy() != theirs.numpy()).reshape(4, -1), axis=1)
    np.testing.assert_array_equal(changed, np.arange(4) == user)


def test_the_worst_user_reaches_the_sensitivity_and_none_exceeds_it():
    mechanism = RESOLVED.replace(noise_multiplier=0.7).mechanism()
    up = np.zeros((3, 64), np.float32)
    up[:, 5] = 1e30
    distance = np.linalg.norm(mechanism.clip(up).numpy().astype(np.float64) - mechanism.clip(-up).numpy()) / _STEPS
    assert 0.999 * mechanism.l2_sensitivity < distance <= mechanism.l2_sensitivity


def test_the_server_knows_nothing_but_what_is_released(monkeypatch, usual):
    """All records of all users are others, releases are the same: so are the generator, its losses and the bytes."""
    model, said, losses = trained(monkeypatch, tiny.dataset(seed=1))
    assert losses == usual[2] and not np.array_equal(said[0], usual[1][0])
    for mine, theirs in zip([*model.student.variables(), model._bytes],
                            [*usual[0].student.variables(), usual[0]._bytes], strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_an_answer_is_what_was_privatized_and_has_noise_of_its_own(monkeypatch):
    """One deviation in five is 7.8 standard errors of 768 numbers."""
    model, drawn, asked = gan(tiny.dataset()), [], []
    clip, answer = SanitizedGradients.clip, Users.answer
    monkeypatch.setattr(SanitizedGradients, "clip", lambda *args: drawn.append(clip(*args)) or drawn[-1])
    monkeypatch.setattr(Users, "answer", lambda *args: asked.append(answer(*args)) or asked[-1])
    model.train(1, 0)
    noise = np.array(asked, np.float64) - np.array(drawn) / _STEPS
    assert asked[0].dtype == np.float32 and noise.shape == (4, 3, 64)
    assert np.std(noise) == pytest.approx(0.7 * 2 * math.sqrt(3), rel=0.2)
    assert len({vectors.tobytes() for vectors in noise}) == 4
    assert np.all(np.abs(np.corrcoef(noise.reshape(4, -1)) - np.eye(4)) < 0.4)


def test_the_schedule_is_public_and_the_generator_follows_the_mean(monkeypatch):
    order, directions, model = [], [], gan(tiny.dataset())
    monkeypatch.setattr(Users, "answer", lambda users, user, *rest: order.append((user, rest[0].images.tobytes()))
                        or np.full((3, 64), user, np.float32))
    monkeypatch.setattr(type(model.student), "train", lambda student, latents, labels, direction:
                        directions.append(direction) or 0.0)
    model.train(1, 0)
    model.train(2, 1)
    assert [user for user, _ in order] == [0, 1, 2, 3] * 2
    assert [np.unique(direction).tolist() for direction in directions] == [[1.0], [3.0], [1.0], [3.0]]
    # Users of one round are asked about the same images, others about others.
    assert len({images for _, images in order[:3]}) == 1 and len({images for _, images in order}) == 4


def test_discriminators_keep_what_they_learn(usual):
    np.testing.assert_array_equal(usual[0].users.critics.variables()[-1], [2 + 2 * 2] * 4)


@pytest.mark.slow
def test_without_noise_the_generator_approaches_the_records(monkeypatch):
    images = np.repeat(np.array([0, 255, 128], np.uint8), 20)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
    data = tiny.as_dataset(images, np.repeat([0, 1, 2], 20), 3)
    config = RESOLVED.replace(
        num_users=2, users_per_round=2, batch_size=12, critic_batch_size=12, critic_steps=2, warmup_steps=50,
        critic_filters=8, learning_rate=2e-3, student_learning_rate=3e-3, ema_decay=0.9, generator_units=32,
        generator_filters=16)
    off = SanitizedGradients(clip_norm=1.0, noise_multiplier=0.0, num_images=12, num_discriminators=1)
    monkeypatch.setattr(type(config), "mechanism", lambda self: off)
    model = gan(data, config)
    model.warm_up(lambda: False)
    for step in range(1, 61):
        model.train(step, step - 1)
    means = model.student.sample_grid().mean((1, 2, 3, 4))
    assert means[0] < 70 and means[1] > 185 and 70 < means[2] < 185


def test_nothing_is_amplified():
    """A charge is one whole Gaussian release, whose noise multiplier is the one that users add."""
    event = RESOLVED.replace(noise_multiplier=0.7).step_event()
    assert event == dp_accounting.GaussianDpEvent(0.7)
    assert accountants.epsilon(event, 5, 1e-5, "gdp", "replace-one-user") == accountants.epsilon(event, 5, 1e-5, "gdp")


@pytest.mark.parametrize("changes, message", [
    ({"num_users": 0}, "num_users=0 >= 1"), ({"users_per_round": 0}, "users_per_round=0 >= 1"),
    ({"clip_norm": 0.0}, "clip_norm=0.0 > 0"), ({"noise_multiplier": 0.0}, "noise_multiplier=0.0 > 0"),
    ({"warmup_steps": -1}, "warmup_steps=-1 >= 0"), ({"num_steps": 0}, "num_steps=0 >= 1"),
    ({"epsilon": None}, "epsilon=None"), ({"accountant": "none"}, "accountant='none' to be one of"),
    ({"num_discriminators": 3}, "Expected settings of fed_gs_wgan, got num_discriminators")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        CONFIG.replace(**changes)
    assert "\n" not in str(caught.value)
