"""DataLens+: sums charged before they are drawn, and a generator that is a function of them."""

import dataclasses
import typing

import numpy as np
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.accounting.statement import parse_statement
from datalens_tf.errors import BudgetExhaustedError, InterruptionWarning, TrainingInterrupted
from datalens_tf.evaluation.report import RunFacts, run_charts
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods import datalens_plus, embedding, moments, prototypes
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.feature_network import FeatureNetwork
from datalens_tf.training.releases import Releases
from tests import ledgers
from tests.methods.conformance import PrivateSynthesizerConformance, UnlabelledRecordsConformance
from tests.models import factor_generators
from tests.training import tiny

CONFIG = DataLensPlusConfig(
    candidates="both:1.5", embedding_charges=4, mean_charges=2, covariance_charges=6, selection_charges=0,
    selection_images=60, selection_epochs=1, num_factors=3, num_features=64, batch_size=12,
    fit_steps=5, prototype_steps=5, latent_dim=4, generator_filters=4, generator_units=8, epsilon=2.0)
# Without learned features, which take time and change nothing in what these settings test.
CHOICE = {"candidates": "moments:0,both:1.5:0.15", "covariance_charges": 3, "selection_charges": 3,
          "learned_share": 0.0}
# The same number of charges.
CLUSTERS = CHOICE | {"num_clusters": 2, "direction_charges": 1, "cluster_charges": 1, "cluster_rounds": 2,
                     "num_directions": 4, "mean_charges": 1, "covariance_charges": 1}
# As for few records, and the same number of charges.
SHARED = {"candidates": "moments:0,moments:1.5:0.15", "embedding_charges": 0, "centre_charges": 1, "mean_charges": 4,
          "covariance_charges": 4, "share_covariance": True, "selection_charges": 3}
# Two cells of each class; as many charges.
PROTOTYPES = {"candidates": "prototypes:1.5:0.1", "embedding_charges": 0, "prototype_charges": 4, "num_prototypes": 4,
              "prototype_cells": 2, "num_networks": 2, "network_filters": 4}
# All three sources; as many charges.
ALL = PROTOTYPES | {"candidates": "both+prototypes:1.5:0.1", "embedding_charges": 2, "prototype_charges": 2}
# Prototypes beside clusters, as for many grey pictures and little noise; as many charges.
CLUSTERED = CLUSTERS | PROTOTYPES | {"candidates": "moments+prototypes:0:0.15,prototypes:1.5:0.15"}
SETTINGS = {"choice": CHOICE, "learned": CHOICE | {"learned_share": 0.75}, "clusters": CLUSTERS, "shared": SHARED,
            "prototypes": PROTOTYPES, "all": ALL, "clustered": CLUSTERED}
MECHANISMS = (MeanEmbedding, SecondMoment, CorrectCounts)
CLUSTERS_TOO = pytest.mark.parametrize("watched", sorted(SETTINGS.keys() - {"learned"}), indirect=True)


class Killed(BaseException):
    """Ends a run wherever it is, as SIGKILL does."""


def watch(monkeypatch, note):
    """Calls `note(mechanism, index)` before each release."""
    for kind in MECHANISMS:
        def watching(self, sums, noise, index, original=kind.privatize):
            note(self, index)
            return original(self, sums, noise, index)

        monkeypatch.setattr(kind, "privatize", watching)


@dataclasses.dataclass
class Watched:
    """A run, and of each of its releases: the exact sums, what was released, its price, and all charges by then."""

    name: str
    run: typing.Any
    sums: list = dataclasses.field(default_factory=list)
    released: list = dataclasses.field(default_factory=list)
    events: list = dataclasses.field(default_factory=list)
    charges: list = dataclasses.field(default_factory=list)

    def privatize(self, original, mechanism, sums, noise, index):
        """In place of a mechanism's own."""
        self.events.append(mechanism.dp_event())
        self.charges.append((index, [charge.count for charge in PrivacyLedger.read(self.run.folder.ledger).charges]))
        self.sums.append(np.array(sums))
        self.released.append(original(mechanism, sums, noise, index))
        return self.released[-1]


@pytest.mark.parametrize("sources", ["moments", "both", "prototypes", "prototypes+moments", "prototypes+both"])
def test_people_see_the_sources_as_they_are_or_prototypes_alone_where_there_are_any(sources):
    config = DataLensPlusConfig(candidates=f"{sources}:1.5:0.1", image_shape=factor_generators.SHAPE, num_classes=2,
                                embedding_charges=int("both" in sources), selection_charges=0,
                                prototype_charges=int("prototypes" in sources))
    made = {name: factor_generators.generator() for name in ("prototypes", "moments", "embedding")}
    smooth = factor_generators.generator()
    fitted = datalens_plus.Fitted(config, made, smooth)
    fitted.choose(0)
    found = fitted.released()
    assert found.warp == 1.5 and found.sources == [made[name] for name in config.choices[0][0]]
    assert found.looking == ([smooth] if "prototypes" in sources else found.sources)


class TestDataLensPlus(UnlabelledRecordsConformance, PrivateSynthesizerConformance):
    CONFIG = CONFIG
    FIRST_OF_ITS_FAMILY = False  # DP-MERF is.
    MOST_RUNS = True

    @pytest.fixture(name="watched", scope="class")
    @classmethod
    def fixture_watched(cls, request, tmp_path_factory):
        """A run with the `SETTINGS` of this name."""
        data = tiny.dataset()
        watched = Watched(request.param, cls.make(tmp_path_factory.mktemp(request.param), **SETTINGS[request.param]))
        with pytest.MonkeyPatch.context() as patched:
            for kind in MECHANISMS:
                patched.setattr(kind, "privatize", lambda *args, original=kind.privatize: watched.privatize(
                    original, *args))
            watched.run.fit(data.images, data.labels)
        return watched

    def test_the_statement_tells_of_the_mean_of_all_and_of_a_shared_covariance(self, tmp_path):
        data = tiny.dataset()
        run = self.make(tmp_path, **SHARED).fit(data.images, data.labels)
        text = " ".join(run.folder.statement_text.read_text().split())
        assert "the sum of all images at half the resolution and their number (1 charges); per class," in text
        assert "of all classes together that of the products of all pairs of pixels" in text
        length = moments.clips(run.config).of_class
        assert f"those of images' differences from the mean of all by at most 2 * {length:g}," in text

    def test_the_noise_is_what_the_budget_asks_for(self, run):
        """Twelve charges, with a choice and without."""
        statement, text = run.privacy_statement(), run.folder.statement_text.read_text()
        assert run.config.noise_multiplier == accountants.calibrate_noise_multiplier(12, 2.0, 1e-5, "gdp")
        assert statement["epsilon"] == pytest.approx(2.0, rel=1e-6) and statement["num_charges"] == 12
        assert "the sum of 64 random features of its images and of those of a network" in " ".join(text.split())

    @pytest.mark.parametrize("declared", [0, pytest.param(1, marks=pytest.mark.slow)])
    def test_a_choice_ends_also_where_hardly_a_record_is_of_a_declared_class(self, tmp_path, declared):
        """The records that it asks may be of one class, or none: that is theirs to keep."""
        data, labels = tiny.dataset(), np.full(20, 9)
        labels[:declared] = 1
        run = self.make(tmp_path, **CHOICE).fit(data.images, labels, num_classes=3)
        assert run.privacy_statement()["num_charges"] == 12

    @CLUSTERS_TOO
    def test_releases_cost_what_their_charges_cost(self, watched):
        """The noise that was really drawn, release by release, composes to the epsilon of the statement."""
        statement = watched.run.privacy_statement()
        assert len(watched.events) == (
            {"clusters": 7, "clustered": 7, "prototypes": 3}.get(watched.name, 4)) and statement["num_charges"] == 12
        found = accountants.epsilon_of(watched.events, 1e-5, "gdp")
        assert found == pytest.approx(statement["epsilon"], rel=1e-9)

    @CLUSTERS_TOO
    def test_charges_are_on_disk_before_the_noise_is_drawn(self, watched):
        """All that pay for a release in one line: a kill burns them together, or none."""
        expected = {"choice": [2, 3, 4, 3], "shared": [1, 4, 4, 3], "clusters": [1, 1, 1, 1, 1, 4, 3],
                    "clustered": [1, 1, 1, 1, 1, 4, 3], "prototypes": [2, 6, 4], "all": [2, 6, 2, 2]}[watched.name]
        assert watched.charges == [(index, expected[:index + 1]) for index in range(len(expected))]

    @pytest.mark.parametrize("watched", [
        "choice", "shared", "prototypes", "all",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("learned", "clusters", "clustered"))],
        indirect=True)
    def test_the_generator_is_a_function_of_the_releases(self, tmp_path, monkeypatch, watched):
        """Other records with the same releases give the same generator: nothing else was looked at."""
        other, replay = tiny.dataset(seed=5), iter(watched.released)
        for kind in MECHANISMS:
            monkeypatch.setattr(kind, "privatize", lambda *args: next(replay))
        second = self.make(tmp_path, **SETTINGS[watched.name]).fit(other.images, other.labels)
        np.testing.assert_array_equal(watched.run.sample(9, seed=0)[0], second.sample(9, seed=0)[0])

    @pytest.mark.parametrize("record, image, label", [
        (0, 255, 2), *(pytest.param(*changed, marks=pytest.mark.slow) for changed in ((7, 0, 1), (19, 255, 1)))])
    @pytest.mark.parametrize("watched", [
        pytest.param("learned", marks=pytest.mark.slow), "clusters", "clustered", "shared", "prototypes", "all"],
        indirect=True)
    def test_a_replaced_record_moves_each_release_by_its_sensitivity_at_most(self, tmp_path, monkeypatch, watched,
                                                                             record, image, label):
        """As composition asks: later sums are compared where all earlier releases were the same."""
        data, moved, replay = tiny.dataset(), [], iter(watched.released)
        images, labels = data.images.copy(), data.labels.copy()
        images[record], labels[record] = image, label
        for kind in MECHANISMS:
            def comparing(self, exact, noise, index):
                distance = np.linalg.norm(exact - watched.sums[len(moved)])
                unit = 2.0**24 if isinstance(self, MeanEmbedding) else 1.0
                moved.append(distance / self.l2_sensitivity / unit)
                return next(replay)

            monkeypatch.setattr(kind, "privatize", comparing)
        self.make(tmp_path, **SETTINGS[watched.name]).fit(images, labels)
        assert len(moved) == len(watched.released) and max(moved) <= 1 and moved[0] > 0.1

    @pytest.mark.slow
    @pytest.mark.parametrize("counts, sources, warp, grain", [
        ((7.0, 3.0), 1, 0.0, 0.0), ((3.0, 7.0), 2, 1.5, 0.15)])
    def test_the_candidate_is_the_one_with_the_largest_released_number(self, tmp_path, monkeypatch, counts, sources,
                                                                       warp, grain):
        monkeypatch.setattr(CorrectCounts, "privatize", lambda *args: np.array(counts))
        data, chosen = tiny.dataset(), []
        original = datalens_plus.Fitted.released
        monkeypatch.setattr(datalens_plus.Fitted, "released", lambda self: chosen.append(original(self)) or chosen[-1])
        self.make(tmp_path, **CHOICE).fit(data.images, data.labels)
        assert len(chosen[-1].sources) == sources and (chosen[-1].warp, chosen[-1].grain) == (warp, grain)

    def kill(self, run_dir, monkeypatch, owner, name, times, **settings):
        """A run that dies when it calls a function the so-manieth time."""
        def killed(*args, **kwargs):
            calls.append(None)
            if len(calls) == times:
                raise Killed
            return original(*args, **kwargs)

        data, calls, original = tiny.dataset(), [], getattr(owner, name)
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(owner, name, killed)
            self.make(run_dir, **settings).fit(data.images, data.labels)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::datalens_tf.errors.InterruptionWarning")
    @pytest.mark.parametrize("settings, kills, num_charges", [
        # The embedding's charge, then nothing, in the fit, then that of the choice, for which nothing is left.
        (CHOICE, [(MeanEmbedding, "privatize", 2), (embedding.EmbeddingStudent, "train", 3),
                  (ReleaseStore, "store", 1)], [2, 3, 4, 4, 3]),
        # That of the means, twice, that of the second round of clusters, and nothing, in the choice.
        (PROTOTYPES, [(MeanEmbedding, "privatize", 1), (prototypes.PrototypeStudent, "train", 3)], [2, 2, 6, 4]),
        (ALL, [(MeanEmbedding, "privatize", 1), (embedding.EmbeddingStudent, "train", 3),
               (prototypes.PrototypeStudent, "train", 3)], [2, 2, 6, 2, 2]),
        (CLUSTERS, [(MeanEmbedding, "privatize", 1), (ReleaseStore, "store", 1), (ReleaseStore, "store", 4),
                    (datalens_plus.classifier.QuickClassifier, "fit", 2)], [1, 1, 1, 1, 1, 1, 1, 1, 4, 3])])
    def test_a_run_that_was_killed_equals_an_uninterrupted_one_with_the_same_burnt_charges(
            self, tmp_path, monkeypatch, settings, kills, num_charges):
        data, settings = tiny.dataset(), settings | {"insecure_noise_seed": 3}
        for kill in kills:
            self.kill(tmp_path / "killed", monkeypatch, *kill, **settings)
        killed = self.make(tmp_path / "killed", **settings).fit(data.images, data.labels)
        charges, stored = ledgers.charges(killed.folder), ReleaseStore(killed.folder.releases).charges()
        assert [charge.count for charge in charges] == num_charges
        burnt = {charge.index: charge for charge in charges if charge.index not in stored}

        def unit(self):
            while len(self.ledger.charges) in burnt:
                charge = burnt[len(self.ledger.charges)]
                self.ledger.spend(charge.event, step=charge.step)
            return original(self)

        original = Releases._unit
        with monkeypatch.context() as patched:
            patched.setattr(Releases, "_unit", unit)
            whole = self.make(tmp_path / "whole", **settings).fit(data.images, data.labels)
        assert ledgers.charges(whole.folder) == charges
        np.testing.assert_array_equal(killed.sample(30, seed=0)[0], whole.sample(30, seed=0)[0])
        assert killed.privacy_statement()["num_burnt_charges"] == sum(charge.count for charge in burnt.values())
        assert killed.privacy_statement()["recalibrated"] == whole.privacy_statement()["recalibrated"]

    @pytest.mark.filterwarnings("ignore::datalens_tf.errors.InterruptionWarning")
    @pytest.mark.slow
    def test_what_is_made_of_a_release_knows_its_own_noise(self, tmp_path, monkeypatch):
        """Directions that the noise explains are left out: that of this release, not that of the settings."""
        seen, data = [], tiny.dataset()
        self.kill(tmp_path, monkeypatch, ReleaseStore, "store", 2, **CHOICE)
        original = SecondMoment.mean
        monkeypatch.setattr(SecondMoment, "mean", lambda self, *args: seen.append(self) or original(self, *args))
        for _ in range(2):  # When it is drawn, and when it is found.
            run = self.make(tmp_path, **CHOICE).fit(data.images, data.labels)
        charge = ledgers.charges(run.folder)[2]
        (noise,) = {moment.noise_multiplier for moment in seen}
        assert noise == charge.unit.noise_multiplier / 3**0.5 > run.config.noise_multiplier / 3**0.5

    @pytest.mark.slow
    def test_the_statement_says_what_was_lost_and_that_the_rest_has_more_noise(self, tmp_path, monkeypatch):
        data = tiny.dataset()
        self.kill(tmp_path, monkeypatch, ReleaseStore, "store", 3, **CHOICE)
        with pytest.warns(InterruptionWarning, match="^4 of 9 charges .* lost .* 1.528 times the noise"):
            run = self.make(tmp_path, **CHOICE).fit(data.images, data.labels)
        statement = parse_statement(run.folder.statement_json.read_text())
        assert statement["num_charges"] == 16 and statement["num_burnt_charges"] == 4 and statement["num_steps"] == 12
        assert statement["noise_multiplier_per_step"] == run.config.noise_multiplier
        (more,) = statement["recalibrated"]
        assert more == {"noise_multiplier": pytest.approx(run.config.noise_multiplier * (7 / 3)**0.5, rel=2e-6),
                        "num_charges": 7}
        assert 2.0 * (1 - 1e-5) <= statement["epsilon"] <= 2.0
        text = " ".join(run.folder.statement_text.read_text().split())
        assert (f"the noise multiplier of a charge is then {more['noise_multiplier']:.6g} for 7 charges." in text
                and "16 charges were made; 4 of them paid for nothing" in text)
        # The report's curve ends where the statement does.
        figures = run_charts(RunFacts.read(run.folder.path), {})
        curve = next(line for line in figures["budget"].axes[0].lines if len(line.get_ydata()) == 16)
        assert curve.get_ydata()[-1] <= max(statement["epsilon_by_accountant"].values()) * (1 + 1e-9)

    @pytest.mark.slow
    def test_a_choice_that_nothing_is_left_for_falls_on_the_first_candidate_and_is_told(self, tmp_path, monkeypatch):
        data, chosen = tiny.dataset(), []
        self.kill(tmp_path, monkeypatch, ReleaseStore, "store", 4, **CHOICE)
        original = datalens_plus.Fitted.choose
        monkeypatch.setattr(datalens_plus.Fitted, "choose",
                            lambda self, number: (chosen.append(number), original(self, number)))
        with pytest.warns(InterruptionWarning, match="3 of 12 charges .* the last of 4 releases, and the run goes on"):
            run = self.make(tmp_path, **CHOICE).fit(data.images, data.labels)
        statement = run.privacy_statement()
        assert chosen == [0] and statement["epsilon"] <= 2.0 and statement["num_burnt_charges"] == 3
        assert "nothing by which to choose among candidates, as interruptions" in statement["released"]

    def test_what_cannot_be_paid_for_is_refused_before_anything_else(self, tmp_path, monkeypatch):
        """The covariances' charge of two thirds of the budget, where nothing else is planned."""
        data, settings = tiny.dataset(), {"candidates": "moments:1", "embedding_charges": 0}
        self.kill(tmp_path, monkeypatch, ReleaseStore, "store", 2, **settings)
        ledger = (tmp_path / "ledger.jsonl").read_bytes()
        monkeypatch.setattr(moments.datasets, "chunks", None)  # No record is looked at.
        with pytest.raises(BudgetExhaustedError, match="8 charges, 6 of them lost .* Nothing more was charged"):
            self.make(tmp_path, **settings).fit(data.images, data.labels)
        assert (tmp_path / "ledger.jsonl").read_bytes() == ledger

    @pytest.mark.slow
    def test_stopped_before_the_choice_it_goes_on_from_what_was_released(self, tmp_path, monkeypatch):
        data, run = tiny.dataset(), self.make(tmp_path, **CHOICE)

        def stopping(*args, **kwargs):
            run.request_stop()
            return found(*args, **kwargs)

        found = datalens_plus.classifier.QuickClassifier.fit
        with monkeypatch.context() as patched:
            patched.setattr(datalens_plus.classifier.QuickClassifier, "fit", stopping)
            with pytest.raises(TrainingInterrupted, match="before a candidate was chosen.*--resume"):
                run.fit(data.images, data.labels)
        before = run.folder.ledger.read_bytes()
        statement = self.make(tmp_path, **CHOICE).fit(data.images, data.labels).privacy_statement()
        assert run.folder.ledger.read_bytes().startswith(before)
        assert statement["num_charges"] == 12 and statement["num_burnt_charges"] == 0

    @pytest.mark.slow
    def test_a_resumed_run_keeps_the_features_that_were_released(self, tmp_path, monkeypatch):
        """Learned once: another network would not see what was summed."""
        data, run, fits = tiny.dataset(), self.make(tmp_path), []
        original = FeatureNetwork.fit
        monkeypatch.setattr(FeatureNetwork, "fit", lambda self, *args: fits.append(original(self, *args)))

        def stopping(*args):
            run.request_stop()
            return found(*args)

        found = embedding.EmbeddingStudent.train
        with monkeypatch.context() as patched:
            patched.setattr(embedding.EmbeddingStudent, "train", stopping)
            with pytest.raises(TrainingInterrupted):
                run.fit(data.images, data.labels)
        assert (tmp_path / "private" / "feature_network.npz").exists() and len(fits) == 1
        self.make(tmp_path).fit(data.images, data.labels)
        assert len(fits) == 1

    @pytest.mark.slow
    def test_a_resumed_run_keeps_the_cells_and_networks_that_were_asked_about(self, tmp_path, monkeypatch):
        data, run, drawn = tiny.dataset(), self.make(tmp_path, **PROTOTYPES), []
        found, draw = prototypes.PrototypeStudent.train, prototypes.posing.draw

        def stopping(*args):
            run.request_stop()
            return found(*args)

        monkeypatch.setattr(prototypes.posing, "draw",
                            lambda *args, **more: drawn.append(args[-1]) or draw(*args, **more))
        with monkeypatch.context() as patched:
            patched.setattr(prototypes.PrototypeStudent, "train", stopping)
            with pytest.raises(TrainingInterrupted, match="Interrupted after step 1 of 5"):
                run.fit(data.images, data.labels)
        self.make(tmp_path, **PROTOTYPES).fit(data.images, data.labels)
        assert drawn.count(prototypes._SEEN) == 1

    def test_the_statement_tells_of_networks_and_cells(self, tmp_path):
        data = tiny.dataset()
        statement = self.make(tmp_path, **PROTOTYPES).fit(data.images, data.labels).privacy_statement()
        assert ("per class, for each of 2 cells, by which of so many images of the moments is nearest to an image at "
                "lower resolution, the sum of what 2 untrained networks see of its images, 8 numbers, and their number "
                "(4 charges)") in statement["released"]

    @pytest.mark.slow
    def test_random_features_alone_need_no_moments(self, tmp_path, monkeypatch):
        drawn, data = [], tiny.dataset()
        watch(monkeypatch, lambda mechanism, index: drawn.append(mechanism.dp_event()))
        run = self.make(tmp_path, candidates="embedding:0", learned_share=0.0, mean_charges=0, covariance_charges=0)
        statement = run.fit(data.images, data.labels).privacy_statement()
        assert len(drawn) == 1 and statement["num_charges"] == 4
        text = " ".join(run.folder.statement_text.read_text().split())
        assert "the sum of 64 random features of its images and their number (4 charges)" in text
        assert not (tmp_path / "private" / "feature_network.npz").exists()


@pytest.mark.slow
class TestMomentsAlone(PrivateSynthesizerConformance):
    """One candidate without a generator to fit: there are no steps to stop in the middle of."""

    CONFIG = CONFIG.replace(candidates="moments:1", embedding_charges=0)
    FIRST_OF_ITS_FAMILY = False
    test_interrupted_and_resumed_equals_uninterrupted = None
    test_damaged_checkpoints_are_one_clear_line = None

    def test_only_what_is_used_is_released(self, tmp_path, monkeypatch):
        drawn, data = [], tiny.dataset()
        watch(monkeypatch, lambda mechanism, index: drawn.append(mechanism.dp_event()))
        run = self.make(tmp_path).fit(data.images, data.labels)
        statement = run.privacy_statement()
        assert len(drawn) == 2 and statement["num_charges"] == 8
        assert accountants.epsilon_of(drawn, 1e-5, "gdp") == pytest.approx(statement["epsilon"], rel=1e-9)
        text = run.folder.statement_text.read_text()
        assert "random features of its images" not in " ".join(text.split())
        assert "clusters of each class" not in " ".join(text.split())


@pytest.mark.slow
class TestClusters(PrivateSynthesizerConformance):
    """A few Gaussians per class."""

    CONFIG = CONFIG.replace(**CLUSTERS)
    FIRST_OF_ITS_FAMILY = False

    def test_the_statement_says_what_was_released(self, run):
        text = " ".join(run.folder.statement_text.read_text().split())
        assert ("2 times, the sums and numbers of the images in 2 clusters of each class, in the directions that those "
                "say (1 charges each)") in text and "half the resolution" not in text
        clips = moments.clips(run.config)
        assert (f"those of clusters, whichever of them had and has the record, by at most 2 * {clips.covariance:g}, "
                f"those of products in these by at most sqrt(2) * {clips.cluster:g}^2") in text


@pytest.mark.parametrize("settings, words", [({}, "at 1/3 of the resolution"), (CLUSTERS, "at 1/3 of the resolution")])
def test_larger_images_are_made_of_what_smaller_ones_say(settings, words, tmp_path):
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (20, 40, 37, 1), np.uint8), np.arange(20) % 2
    config = CONFIG.replace(moments_side=14, features_side=20, **settings)
    run = datalens_plus.DataLensPlus(config, run_dir=tmp_path / "run").fit(images, labels)
    assert (run.config.moments_square, run.config.features_square) == (3, 2)
    assert run.config.features_data == ((20, 19, 1), 2)
    assert words in run.privacy_statement()["released"] and run.sample(4)[0].shape == (4, 40, 37, 1)


@pytest.mark.parametrize("config", [CONFIG, DataLensPlusConfig(epsilon=10.0), DataLensPlusConfig(epsilon=1.0)],
                         ids=["tiny", "clusters", "default"])
def test_every_release_has_its_work(config, tmp_path):
    """By which the time left is told: the stage lasts as long as its releases."""
    config = config.replace(image_shape=(28, 28, 1), num_classes=10).resolved(60_000)
    run = datalens_plus.DataLensPlus(config, run_dir=tmp_path)
    work = run._release_work(60_000)
    assert len(work) == len(config.release_charges) - config.num_optional and min(work) >= 0
    assert run._stages(60_000)[0].work == sum(work) > 0
