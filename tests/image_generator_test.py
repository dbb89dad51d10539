"""The package as people write Python: one call for every method, and what a fitted generator does."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
import sklearn.base

import datalens_tf as dl
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.auditing.verification import verify
from datalens_tf.methods.registry import config_class, methods
from datalens_tf.settings import declared

STREAM = np.random.default_rng(0)
IMAGES = STREAM.integers(0, 256, (60, 8, 8, 1)).astype(np.uint8)
NAMES = np.array(["cat", "dog", "emu"])[np.arange(60) % 3]
TINY = dict(generator_filters=4, generator_units=8, latent_dim=4)


@pytest.fixture(name="run", scope="module")
def fixture_run(tmp_path_factory):
    """A trained generator in a run folder. Not to be changed."""
    with pytest.warns(UserWarning, match="the 3 classes cat, dog, emu"):
        return dl.fit(IMAGES, NAMES, "dp_merf", 2.0, run_dir=tmp_path_factory.mktemp("runs") / "run", progress=False,
                      num_features=20, fit_steps=2, **TINY)


def test_all_methods_stand_in_a_table_that_iterates():
    table = dl.methods()
    assert [method.name for method in table] == sorted(methods()) and str(table).startswith("METHOD")
    assert repr(table) == str(table) and "<td>datalens</td>" in table._repr_html_()


def test_a_generator_samples_any_classes(run):
    images, labels = run.sample(7, seed=3)
    assert images.shape == (7, 8, 8, 1) and images.dtype == np.uint8 and labels.dtype == np.int64
    np.testing.assert_array_equal(run.sample(7, seed=3).images, images)
    assert run.class_names == ("cat", "dog", "emu")
    assert run.sample(3, "dog").labels.tolist() == [1] * 3 and run.sample(3, 2).labels.tolist() == [2] * 3
    assert run.sample(5, ["emu", 0]).labels.tolist() == [2, 0, 2, 0, 2]
    with pytest.raises(dl.DataLensError, match="got 'dgo': the classes are cat, dog, emu. Did you mean dog"):
        run.sample(3, "dgo")


def test_its_privacy_is_what_the_ledger_says(run):
    ledger = PrivacyLedger.read(run._folder / "ledger.jsonl")
    assert ledger.num_charges == run.privacy["num_charges"] and run.privacy["epsilon"] == accountants.epsilon(
        ledger.step_event, ledger.num_charges, 1e-5, "gdp") <= 2.0
    assert str(run.privacy).strip() == (run._folder / "privacy.txt").read_text().strip()
    assert repr(run).endswith("fitted: dp_merf, epsilon 2.0000 (gdp), delta 1e-05, replace-one")
    assert run.config.num_features == 20


def test_notebooks_show_a_picture(run):
    assert "epsilon 2.0000" in run._repr_html_() and "data:image/png;base64," in run._repr_html_()
    assert "ImageGenerator()" in dl.ImageGenerator()._repr_html_()


def test_what_is_saved_may_be_shared_and_loads(run, tmp_path):
    saved = run.save(tmp_path / "shared")
    assert sorted(path.name for path in saved.iterdir()) == [
        "SHA256SUMS", "config.json", "generator", "ledger.jsonl", "privacy.json", "privacy.txt", "samples.npz",
        "samples.png"]
    loaded = dl.load(saved)
    np.testing.assert_array_equal(loaded.sample(5, seed=1).images, run.sample(5, seed=1).images)
    assert loaded.privacy == run.privacy and loaded.method == "dp_merf" and loaded.epsilon == 2.0
    exported = dl.load(saved / "generator")
    assert exported.privacy == run.privacy and exported.class_names == run.class_names
    with pytest.raises(dl.DataLensError, match="to be a new folder"):
        run.save(saved)
    with pytest.raises(dl.DataLensError, match="SavedModel"):
        dl.load(tmp_path)


def test_what_is_saved_of_a_released_generator_verifies(tmp_path):
    saved = dl.load(pathlib.Path(__file__).parents[1] / "checkpoints" / "mnist_plus_eps1").save(tmp_path / "saved")
    assert not [check.text for check in verify(saved) if check.passed is False]


@pytest.mark.parametrize("words, said", [
    (dict(n=-1, label="cat"), "n=-1 >= 1"), (dict(n="a"), "n='a' to be an integer"),
    (dict(n=2.5, label="cat"), "n=2.5"), (dict(n=10**12, label="cat"), "n=1000000000000 <="),
    (dict(n=3, seed=1.5), "seed=1.5"), (dict(n=4, label=[]), "to name a class")])
def test_a_draw_of_nonsense_is_refused(run, words, said):
    with pytest.raises(dl.DataLensError, match=said):
        run.sample(**words)


def test_parameters_are_like_those_of_scikit_learn(run):
    generator = dl.ImageGenerator("dp_merf", 2.0, num_features=20)
    clone = sklearn.base.clone(generator)
    assert clone is not generator and clone.get_params() == generator.get_params()
    assert clone.set_params(epsilon=1.0, fit_steps=3) is clone and generator.epsilon == 2.0
    assert repr(clone) == "ImageGenerator(method='dp_merf', epsilon=1.0, num_features=20, fit_steps=3)"
    assert sklearn.base.clone(run)._folder is None
    for call in (lambda: clone.set_params(epsilom=1), lambda: dl.ImageGenerator(epsilom=1)):
        with pytest.raises(dl.DataLensError, match="Unknown setting 'epsilom'. Did you mean epsilon?"):
            call()


@pytest.mark.parametrize("call, line", [
    (lambda folder: dl.ImageGenerator().sample(3), "call fit first"),
    (lambda folder: dl.fit(IMAGES, NAMES, run_dir=folder), "holds a run: continue it with --resume"),
    (lambda folder: dl.fit(IMAGES, NAMES, resume=True), "Missing run_dir"),
    (lambda folder: dl.fit("digits", NAMES), "leave them out"),
    (lambda folder: dl.fit(IMAGES, NAMES, "dp_mref"), "Did you mean dp_merf?"),
    (lambda folder: dl.fit(IMAGES, NAMES, "dp_merf", num_teachers=4), "choose a --method that has it: d2pfed"),
    (lambda folder: dl.fit(IMAGES, NAMES, "dp_merf", epsilon=0), "epsilon=0 > 0"),
])
@pytest.mark.filterwarnings("ignore::datalens_tf.errors.DataWarning")
def test_mistakes_are_one_line(call, line, run):
    with pytest.raises(dl.DataLensError, match=line) as raised:
        call(run._folder)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore::datalens_tf.errors.DataWarning")
def test_a_run_resumes_with_its_own_records_alone(run):
    again = dl.ImageGenerator(**run.get_params()).fit(IMAGES, NAMES, run_dir=run._folder, resume=True, progress=False)
    assert again.privacy == run.privacy
    with pytest.raises(dl.DataLensError, match="other records"):
        dl.ImageGenerator(**run.get_params()).fit(IMAGES[::-1], NAMES, run_dir=run._folder, resume=True, progress=False)


@pytest.mark.slow
def test_it_is_evaluated_on_real_records(run, tmp_path):
    found = run.evaluate(IMAGES[1:], NAMES[1:], epochs=1, progress=False)
    assert 0 <= found["utility"]["accuracy_mean"] <= 1 and "accuracy" in str(found)
    with pytest.raises(dl.DataLensError, match="got 'fox'"):
        run.evaluate(IMAGES[:2], ["cat", "fox"], progress=False)
    with pytest.raises(dl.DataLensError, match="one shape"):
        run.evaluate(np.zeros([6, 9, 9, 1], np.uint8), NAMES[:6], progress=False)


def test_what_is_missing_for_an_evaluation_is_said(run):
    with pytest.raises(dl.DataLensError, match="Missing labels: give the class of each image, one of cat, dog, emu"):
        run.evaluate(IMAGES[1:], progress=False)
    with pytest.raises(dl.DataLensError, match="utilty"):
        run.evaluate(IMAGES[1:], NAMES[1:], metrics="utilty", progress=False)
    with pytest.raises(dl.DataLensError, match="nowhere"):
        run.evaluate(IMAGES[1:], NAMES[1:], train="folder:nowhere", progress=False)


def test_it_is_not_evaluated_on_the_records_that_it_was_trained_on(run):
    for generator in (run, dl.load(run._folder)):
        with pytest.raises(dl.DataLensError, match="Expected other records than those"):
            generator.evaluate(IMAGES, NAMES, progress=False)


def test_a_loaded_run_is_evaluated_on_pictures_that_are_read_as_its_own_were(tmp_path, monkeypatch):
    for number in range(12):  # Each half black, half white in 12 bits of 16.
        folder = tmp_path / "scans" / "test" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        picture = np.repeat(np.array([0, 4095], np.uint16), 8)[:, None] * np.ones([1, 16], np.uint16)
        PIL.Image.fromarray(picture).save(folder / f"{number}.png")
    (tmp_path / "scans" / "test" / "a" / "damaged.png").write_bytes(b"no picture")
    shutil.copytree(tmp_path / "scans" / "test", tmp_path / "scans" / "train")
    (tmp_path / "scans" / "test" / "a" / "0.png").unlink()
    dl.fit(tmp_path / "scans", None, "dp_merf", 2.0, run_dir=tmp_path / "run", progress=False, num_features=20,
           fit_steps=2, classes=["a", "b"], image_size=8, color="grey", picture_bits=12, skip_unreadable=True, **TINY)

    tested = []

    def evaluate(draw, train, test, **_):
        tested.append(test)
        raise dl.DataLensError("enough")

    monkeypatch.setattr("datalens_tf.evaluation.evaluate.evaluate", evaluate)
    with pytest.raises(dl.DataLensError, match="enough"):
        dl.load(tmp_path / "run").evaluate(tmp_path / "scans", progress=False)
    assert tested[0].images.max() == 255


@pytest.mark.slow
@pytest.mark.parametrize("method", ["datalens_plus", "dcgan", "dp_gan", "fed_gs_wgan", "pate_gan"])
def test_methods_train_by_the_same_call(method):
    settings = {name: value for name, value in dict(
        num_teachers=4, num_discriminators=4, num_users=4, num_steps=2, batch_size=4, critic_steps=1, critic_filters=2,
        warmup_steps=1, warmup_teacher_steps=1, discriminator_filters=2, discriminator_units=8, num_features=20,
        fit_steps=2, **TINY).items() if name in declared(config_class(method))}
    generator = dl.fit(IMAGES, np.arange(60) % 3, method, None if method == "dcgan" else 50.0, progress=False,
                       **settings)
    assert generator.sample(3, seed=0).images.shape == (3, 8, 8, 1)
    assert generator.privacy["private"] == (method != "dcgan")


def test_importing_takes_no_time_and_prints_nothing():
    code = ("import sys, datalens_tf as dl\nassert 'numpy' not in sys.modules and 'tensorflow' not in sys.modules\n"
            "dl.methods()\nassert 'tensorflow' not in sys.modules\ndl.TopAgg, dl.DataLens, dl.load, dl.TopAggLayer\n"
            "assert 'tensorflow' in sys.modules")
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
