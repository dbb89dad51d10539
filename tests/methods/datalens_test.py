"""The Python API: fit, sample, statement, export."""

import json
import math
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import datalens_tf
from datalens_tf.accounting import accountants
from datalens_tf.auditing.verification import verify
from datalens_tf.errors import CheckpointError, DataError, InvalidArgumentError
from datalens_tf.methods import base
from datalens_tf.methods.datalens import DataLens
from datalens_tf.methods.registry import synthesizer
from datalens_tf.serving.export import load_generator
from tests.training import tiny

PUBLIC_FILES = {"SHA256SUMS", "config.json", "ledger.jsonl", "privacy.json", "privacy.txt", "samples.npz",
                "samples.png", "generator", "private"}
CONFIG = tiny.CONFIG.replace(insecure_noise_seed=None, image_shape=None, num_classes=None, num_steps=2)


@pytest.fixture(name="run", scope="module")
def fixture_run(tmp_path_factory):
    """A finished run under a real budget, with as many samples as users get."""
    data = tiny.dataset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "NUM_SHIPPED_SAMPLES", 10_000)
        return DataLens(CONFIG, run_dir=tmp_path_factory.mktemp("run")).fit(data.images, data.labels)


def test_run_folder_has_the_documented_files_and_no_others(run):
    assert {path.name for path in run.folder.path.iterdir()} == PUBLIC_FILES
    with np.load(run.folder.samples) as samples:
        assert samples["x"].dtype == np.uint8 and samples["x"].shape == (10_000, 8, 8, 1)
        assert samples["y"].dtype == np.int64 and set(samples["y"]) == {0, 1, 2}
    assert run.folder.samples_png.read_bytes().startswith(b"\x89PNG")


def test_config_is_resolved_and_re_runnable(run):
    config = datalens_tf.DataLensConfig.from_json(run.folder.config.read_text())
    assert config == run.config and config.image_shape == (8, 8, 1) and config.num_classes == 3


def test_statement_has_the_epsilon_of_the_ledger(run):
    statement = run.privacy_statement()
    assert statement["private"] and statement["epsilon"] == run.trainer.ledger.spent()
    assert statement["epsilon"] <= CONFIG.epsilon
    assert f"{statement['delta']:g}" in run.folder.statement_text.read_text()


def privacy_of(generator):
    return (generator.path / "assets.extra" / "privacy.json").read_text()


def images_of(generator, latents):
    """Images [n, H, W, C] of latents, with labels in turn."""
    return generator.model.signatures["from_latents"](
        latents=tf.constant(latents), labels=tf.constant(np.arange(len(latents)) % 3))["images"].numpy()


@pytest.fixture(name="pair", scope="module")
def fixture_pair(tmp_path_factory):
    """A plain and a posed run. The same noise, seeded, releases the same: what becomes of the images differs."""
    data, config, folder = tiny.dataset(), CONFIG.replace(insecure_noise_seed=1, num_steps=1), tmp_path_factory.mktemp(
        "posed")
    return [DataLens(one, run_dir=folder / name).fit(data.images, data.labels) for name, one in {
        "plain": config, "posed": config.replace(output_warp=1.5, output_grain=0.2)}.items()]


def test_exported_images_are_moved_and_have_grain_and_training_knows_nothing_of_it(pair):
    expected, found = (load_generator(run.folder.generator) for run in pair)
    assert found.latent_distribution == "normal" and found.latent_dim > expected.latent_dim
    latents = np.zeros((6, found.latent_dim), np.float32)
    unmoved = images_of(expected, np.zeros((6, expected.latent_dim), np.float32))
    np.testing.assert_allclose(images_of(found, latents), unmoved, atol=1e-5)
    latents[:, -65:] = 1.0  # the grain's: a level, and noise for each pixel
    assert np.all(np.abs(images_of(found, latents) - unmoved)[unmoved < 0.95] > 0.05)
    latents[:] = 0
    latents[:, expected.latent_dim + 1] = 5.0  # turned by 0.75 radians
    assert np.abs(images_of(found, latents) - unmoved).mean() > 0.01
    assert {"looking"} == set(found.model.signatures) - set(expected.model.signatures)


@pytest.mark.slow
def test_a_finished_run_is_exported_with_what_it_was_not_trained_with(pair, tmp_path):
    plain, posed = pair
    expected, found = (load_generator(run.folder.generator) for run in pair)
    latents = np.random.default_rng(0).normal(size=(6, found.latent_dim)).astype(np.float32)
    late = load_generator(plain.export(tmp_path / "late", output_warp=1.5, output_grain=0.2).parent)
    np.testing.assert_allclose(images_of(late, latents), images_of(found, latents), atol=1e-5)
    assert "looking" in late.model.signatures and privacy_of(late) == privacy_of(expected)
    with pytest.raises(InvalidArgumentError, match="have a warp, grain or a choice already"):
        posed.export(tmp_path / "twice", output_warp=1.0)
    with pytest.raises(InvalidArgumentError, match="without --step"):
        plain.export(tmp_path / "early", output_warp=1.0, step=1)
    chosen = load_generator(plain.export(tmp_path / "chosen", output_choices=3).parent)
    assert chosen.latent_dim == 3 * expected.latent_dim + 1 + 6 and privacy_of(chosen) == privacy_of(expected)
    assert len(chosen.sample(np.arange(1024) % 3)) == 1024  # as many as a request may ask for
    cards = [(one.path / "assets.extra/MODEL_CARD.md").read_text() for one in (expected, found, late, chosen)]
    assert ["strength 1.5; it has grain with a mean standard deviation of 0.2" in card for card in cards] == [
        False, True, True, False]
    assert ["the one of 3" in card for card in cards] == [False, False, False, True]
    data = tiny.dataset()
    private = DataLens(posed.config.replace(insecure_noise_seed=None), run_dir=tmp_path / "private").fit(
        data.images, data.labels)
    assert all(check.passed is not False for check in verify(private.folder.path))


@pytest.mark.slow
def test_predictable_noise_makes_the_statement_say_not_private(tmp_path):
    data = tiny.dataset()
    run = DataLens(CONFIG.replace(insecure_noise_seed=1, num_steps=1), run_dir=tmp_path).fit(data.images, data.labels)
    assert run.privacy_statement()["epsilon"] is None
    assert run.folder.statement_text.read_text().startswith("NOT PRIVATE")


@pytest.mark.slow
def test_ledger_and_statement_follow_what_is_switched_off(tmp_path):
    data = tiny.dataset()
    config = CONFIG.replace(top_k=None, quantization="sign", vote_threshold=None, num_steps=1)
    run = DataLens(config, run_dir=tmp_path).fit(data.images, data.labels)
    statement, sensitivity = run.privacy_statement(), 2 * math.sqrt(64 * config.batch_size)
    assert statement["private"] and statement["top_k"] == 64 and statement["l2_sensitivity"] == sensitivity
    assert statement["epsilon"] == accountants.epsilon(
        dp_accounting.GaussianDpEvent(config.noise_stddev / sensitivity), 1, config.delta, config.accountant)
    assert datalens_tf.DataLensConfig.from_json(run.folder.config.read_text()).top_k is None


def test_samples_are_balanced_reproducible_and_as_labelled(run):
    x, y = run.sample(30, seed=4)
    again = run.sample(30, seed=4)
    np.testing.assert_array_equal(x, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert np.all(np.bincount(y) == 10)
    assert not np.array_equal(x, run.sample(30, seed=5)[0])
    np.testing.assert_array_equal(run.sample(2, labels=[2, 0])[1], [2, 0])


def test_bad_sample_requests_are_one_clear_line(run):
    for arguments, message in [(dict(num_images=0), "num_images=0"), (dict(num_images=2, labels=[0, 3]), "labels"),
                               (dict(num_images=2, labels=[0]), "num_images=2")]:
        with pytest.raises(InvalidArgumentError, match=message):
            run.sample(**arguments)


def test_a_finished_run_can_be_loaded_and_fitting_again_changes_nothing(run):
    loaded = DataLens.load(run.folder.path)
    np.testing.assert_array_equal(loaded.sample(3, seed=1)[0], run.sample(3, seed=1)[0])
    before = run.folder.ledger.read_bytes()
    data = tiny.dataset()
    DataLens(CONFIG, run_dir=run.folder.path).fit(data.images, data.labels)
    assert run.folder.ledger.read_bytes() == before


def test_loading_an_unfinished_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no finished run"):
        DataLens.load(tmp_path)


@pytest.mark.slow
def test_exported_generator_runs_where_the_package_is_not_installed(run, tmp_path):
    path = run.export(tmp_path / "serving", version=3)
    assert path == tmp_path / "serving" / "3"
    program = (
        "import sys; sys.path = [p for p in sys.path if p]; import tensorflow as tf\n"
        f"model = tf.saved_model.load({str(path)!r})\n"
        "labels, seed = tf.constant([[0, 1], [5, 6]], tf.int64)\n"
        "images = model.signatures['sample'](labels=labels, seed=seed)\n"
        "assert images['images'].shape == (2, 8, 8, 1) and 'datalens_tf' not in sys.modules")
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, capture_output=True,
                   env={"TF_CPP_MIN_LOG_LEVEL": "3", "PATH": ""})
    assert json.loads((path / "assets.extra" / "privacy.json").read_text()) == run.privacy_statement()
    with pytest.raises(InvalidArgumentError, match="version=3"):
        run.export(tmp_path / "serving", version=3)


@pytest.mark.slow  # G-PATE's quick tests have one of the kind.
def test_an_earlier_step_is_exported_with_the_smaller_epsilon_of_its_own_charges(run, tmp_path):
    first = run.export(tmp_path, version=1, step=1)
    statement = json.loads((first / "assets.extra" / "privacy.json").read_text())
    assert statement["num_charges"] == 1 and 0 < statement["epsilon"] < run.privacy_statement()["epsilon"]
    last = run.export(tmp_path, version=2, step=2)
    labels = np.array([0, 1, 2])
    earlier, later, whole = (datalens_tf.load_generator(path).sample(labels, seed=1)
                             for path in (first, last, run.folder.generator))
    np.testing.assert_array_equal(later, whole)
    assert not np.array_equal(earlier, later)
    with pytest.raises(CheckpointError, match="the last is step 2"):
        run.export(tmp_path, version=3, step=3)


def test_nothing_private_is_in_the_generator(run):
    import tensorflow as tf

    names = tf.train.list_variables(str(run.folder.generator / "1" / "variables" / "variables"))
    shapes = [tuple(shape) for name, shape in names if name.endswith("VARIABLE_VALUE")]
    student = run.trainer and len(shapes)
    assert student == 3 + 3 * 4 + 2  # Three kernels and norms, the last kernel with its bias; no teacher, no slot.
    assert not any(shape and shape[0] == CONFIG.num_teachers and len(shape) > 2 for shape in shapes)


def test_presets_and_changes():
    run = DataLens.from_preset("mnist", epsilon=1.0, num_teachers=100)
    assert (run.config.top_k, run.config.noise_stddev, run.config.num_teachers) == (200, 5000.0, 100)
    with pytest.raises(InvalidArgumentError, match="preset='mnits'"):
        DataLens.from_preset("mnits")
    with pytest.raises(InvalidArgumentError, match="Unknown method 'gan'"):
        synthesizer("gan")


def test_bad_arrays_are_refused_before_a_folder_is_made(tmp_path):
    data = tiny.dataset()
    with pytest.raises(DataError):
        DataLens(CONFIG, run_dir=tmp_path / "run").fit(data.images, data.labels[:-1])
    assert not (tmp_path / "run").exists()


def test_importing_the_package_does_not_import_tensorflow():
    program = "import sys, datalens_tf; assert 'tensorflow' not in sys.modules; datalens_tf.DataLensConfig"
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
