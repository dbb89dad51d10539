"""DataLens+: moments and a classifier, charged before they are drawn, and a generator that is a function of both."""

import dp_accounting
import numpy as np
import pytest

from datalens_tf.errors import BudgetExhaustedError, InvalidArgumentError, TrainingInterrupted
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.linear_gradient import LinearGradient
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods import DataLensPlusConfig
from datalens_tf.privacy import PrivacyLedger, accounting
from datalens_tf.synthesizers import datalens_plus
from datalens_tf.training.checkpoint import ReleaseStore
from tests.synthesizers.conformance import PrivateSynthesizerConformance
from tests.training import tiny

CONFIG = DataLensPlusConfig(mean_charges=2, covariance_charges=3, classifier_steps=4, num_factors=3, num_candidates=2,
                            warps="1", selection_charges=0, epsilon=2.0)
MECHANISMS = (MeanEmbedding, SecondMoment, LinearGradient, CorrectCounts)


def watch(monkeypatch, note):
    """Calls `note(mechanism, index)` before each release."""
    for kind in MECHANISMS:
        def watching(self, sums, noise, index, original=kind.privatize):
            note(self, index)
            return original(self, sums, noise, index)

        monkeypatch.setattr(kind, "privatize", watching)


class TestDataLensPlus(PrivateSynthesizerConformance):
    CONFIG = CONFIG

    def test_the_noise_is_what_the_budget_asks_for(self, run):
        statement, text = run.privacy_statement(), run.folder.statement_text.read_text()
        assert run.config.noise_multiplier == accounting.calibrate_noise_multiplier(9, 2.0, 1e-5, "gdp")
        assert statement["epsilon"] == pytest.approx(2.0, rel=1e-6) and statement["num_charges"] == 9
        assert "4 sums of a classifier's gradients" in " ".join(text.split())

    def test_releases_cost_what_their_charges_cost(self, tmp_path, monkeypatch):
        """The noise that was really drawn, release by release, composes to the epsilon of the statement."""
        drawn, data = [], tiny.dataset()
        watch(monkeypatch, lambda mechanism, index: drawn.append(mechanism.dp_event()))
        run = self.make(tmp_path).fit(data.images, data.labels)
        assert len(drawn) == 6
        found = accounting.epsilon_of(drawn, 1e-5, "gdp")
        assert found == pytest.approx(run.privacy_statement()["epsilon"], rel=1e-9)

    def test_charges_are_on_disk_before_the_noise_is_drawn(self, tmp_path, monkeypatch):
        seen, data = [], tiny.dataset()
        watch(monkeypatch, lambda _, index: seen.append(
            (index, len(PrivacyLedger.read(tmp_path / "ledger.jsonl").charges))))
        self.make(tmp_path).fit(data.images, data.labels)
        assert seen == [(1, 2), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]

    def test_the_generator_is_a_function_of_the_releases(self, tmp_path, monkeypatch):
        """Other records with the same releases give the same generator: nothing else was looked at."""
        data, other, kept = tiny.dataset(), tiny.dataset(seed=5), []
        for kind in MECHANISMS:
            def keeping(self, sums, noise, index, original=kind.privatize):
                kept.append(original(self, sums, noise, index))
                return kept[-1]

            monkeypatch.setattr(kind, "privatize", keeping)
        first = self.make(tmp_path / "a").fit(data.images, data.labels)
        replay = iter(list(kept))
        for kind in MECHANISMS:
            monkeypatch.setattr(kind, "privatize", lambda *args: next(replay))
        second = self.make(tmp_path / "b").fit(other.images, other.labels)
        np.testing.assert_array_equal(first.sample(9, seed=0)[0], second.sample(9, seed=0)[0])

    def test_a_charge_without_its_release_is_burnt_and_nothing_is_drawn_again(self, tmp_path, monkeypatch):
        def killed(*args):
            raise KeyboardInterrupt

        data = tiny.dataset()
        monkeypatch.setattr(ReleaseStore, "store", killed)
        with pytest.raises(KeyboardInterrupt):
            self.make(tmp_path).fit(data.images, data.labels)
        monkeypatch.undo()
        run = self.make(tmp_path).fit(data.images, data.labels)
        statement = run.privacy_statement()
        # Two charges were lost, so that two steps of the classifier could not be paid for.
        assert statement["num_charges"] == 9 and statement["num_burnt_charges"] == 2
        assert statement["epsilon"] <= 2.0

    def test_more_lost_than_the_classifier_costs_is_one_clear_line(self, tmp_path):
        data = tiny.dataset()
        event = dp_accounting.GaussianDpEvent(accounting.calibrate_noise_multiplier(9, 2.0, 1e-5, "gdp"))
        run = self.make(tmp_path).fit(data.images, data.labels)
        ledger = PrivacyLedger.open(run.folder.ledger)
        with pytest.raises(BudgetExhaustedError, match="does not pay for another step"):
            ledger.spend(event, step=0)


class TestWithAChoice(PrivateSynthesizerConformance):
    """Without a classifier in the generator there are no steps to stop in the middle of."""

    CONFIG = CONFIG.replace(classifier_steps=0, num_candidates=1, warps="0,1.5", selection_charges=4,
                            selection_images=60, selection_epochs=1)
    test_interrupted_and_resumed_equals_uninterrupted = None
    test_damaged_checkpoints_are_one_clear_line = None

    def test_releases_cost_what_their_charges_cost(self, tmp_path, monkeypatch):
        drawn, data = [], tiny.dataset()
        watch(monkeypatch, lambda mechanism, index: drawn.append(mechanism.dp_event()))
        statement = self.make(tmp_path).fit(data.images, data.labels).privacy_statement()
        assert len(drawn) == 3 and statement["num_charges"] == 9
        assert accounting.epsilon_of(drawn, 1e-5, "gdp") == pytest.approx(statement["epsilon"], rel=1e-9)

    @pytest.mark.parametrize("counts, warp", [((7.0, 3.0), 0.0), ((3.0, 7.0), 1.5)])
    def test_the_warp_is_the_one_with_the_larger_released_number(self, tmp_path, monkeypatch, counts, warp):
        monkeypatch.setattr(CorrectCounts, "privatize", lambda *args: np.array(counts))
        data, set_to = tiny.dataset(), []
        original = datalens_plus.Fitted.set_warp
        monkeypatch.setattr(datalens_plus.Fitted, "set_warp",
                            lambda self, value: (set_to.append(value), original(self, value)))
        self.make(tmp_path).fit(data.images, data.labels)
        assert set_to == [0.0, 1.5, warp]

    def test_without_budget_left_for_the_choice_the_first_is_taken(self, tmp_path, monkeypatch):
        def killed(*args):
            raise KeyboardInterrupt

        data = tiny.dataset()
        monkeypatch.setattr(CorrectCounts, "privatize", killed)  # Its four charges are burnt.
        with pytest.raises(KeyboardInterrupt):
            self.make(tmp_path).fit(data.images, data.labels)
        statement = self.make(tmp_path).fit(data.images, data.labels).privacy_statement()
        assert statement["num_charges"] == 9 and statement["num_burnt_charges"] == 4
        assert statement["epsilon"] <= 2.0

    def test_stopped_before_the_choice_it_goes_on_from_what_was_released(self, tmp_path, monkeypatch):
        data, run = tiny.dataset(), self.make(tmp_path)

        def stopping(*args, **kwargs):
            run.request_stop()
            return found(*args, **kwargs)

        found = datalens_plus.utility.train_on_synthetic
        with monkeypatch.context() as patched:
            patched.setattr(datalens_plus.utility, "train_on_synthetic", stopping)
            with pytest.raises(TrainingInterrupted, match="before the warp was chosen.*--resume"):
                run.fit(data.images, data.labels)
        before = run.folder.ledger.read_bytes()
        statement = self.make(tmp_path).fit(data.images, data.labels).privacy_statement()
        assert run.folder.ledger.read_bytes().startswith(before)
        assert statement["num_charges"] == 9 and statement["num_burnt_charges"] == 0


def test_half_resolution_keeps_lengths_of_smooth_images_and_comes_back():
    smooth = np.full((2, 8, 12, 3), 0.3)
    vectors = datalens_plus.half_resolution(smooth)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), np.linalg.norm(smooth.reshape(2, -1), axis=1))
    back = vectors @ datalens_plus._upscaling((8, 12, 3))
    np.testing.assert_allclose(back.reshape(smooth.shape), smooth, atol=1e-6)


def test_directions_that_noise_alone_explains_are_left_out():
    covariance = np.diag([5.0, 0.1, 3.0, 0.4])
    factors = datalens_plus._factors(covariance, 0.5, 3)
    np.testing.assert_allclose(factors.T @ factors, np.diag([5.0, 0, 3.0, 0]), atol=1e-9)
    assert datalens_plus._factors(covariance, 0.5, 1).shape == (1, 4)


@pytest.mark.parametrize("changes, message", [
    ({"num_candidates": 2}, "num_candidates"), ({"warps": "0,-1"}, "warps"), ({"warps": "x"}, "warps"),
    ({"selection_charges": 0}, "selection_charges"), ({"warps": "1"}, "selection_charges"),
    ({"mean_charges": 0}, "mean_charges"), ({"covariance_clip": 0.0}, "covariance_clip"),
    ({"classifier_momentum": 1.0}, "classifier_momentum")])
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        DataLensPlusConfig(**changes)
