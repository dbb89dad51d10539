"""Converted generators draw the same images, and carry the statement."""

import io
import json
import shutil
import subprocess
import zipfile

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from PIL import Image
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from datalens_tf.accounting.accountants import round_up
from datalens_tf.cli import main
from datalens_tf.errors import DataLensError, InvalidArgumentError
from datalens_tf.models.generator import Generator
from datalens_tf.models.prototypes import PrototypeGenerator
from datalens_tf.models.warp import WarpedGenerator
from datalens_tf.serving import convert
from datalens_tf.serving.export import copy_export, export_generator, load_generator
from tests.models.factor_generators import SHAPE
from tests.models.factor_generators import generator as clusters
from tests.serving.browser import smuggled
from tests.serving.released import STATEMENT
from tests.serving.tiny_generator import SETTINGS, TinyGenerator

LATENTS = np.random.default_rng(0).uniform(-1, 1, (7, 6)).astype(np.float32)
BIDI = "abc\u202edef"
LABELS = np.array([0, 1, 2, 2, 1, 0, 1])


@pytest.fixture(scope="module", name="generator")
def fixture_generator(tmp_path_factory):
    path = export_generator(TinyGenerator(), tmp_path_factory.mktemp("convert"), **SETTINGS,
                            class_names=["<!--<script>", "dog", "</script>"],
                            assets={"privacy.json": json.dumps(STATEMENT), "MODEL_CARD.md": "# Card"})
    return load_generator(path)


@pytest.fixture(scope="module", name="expected")
def fixture_expected(generator):
    return generator.model.signatures["from_latents"](
        latents=tf.constant(LATENTS), labels=tf.constant(LABELS))["images"].numpy()


def test_onnx(generator, expected, tmp_path):
    assert main(["convert", "--model", str(generator.path), "--output", str(tmp_path / "x.onnx")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "x.onnx", providers=["CPUExecutionProvider"])
    for count in (7, 1):
        (images,) = session.run(["images"], {"latents": LATENTS[:count], "labels": LABELS[:count]})
        np.testing.assert_allclose(images, expected[:count], atol=1e-6)
    carried = {entry.key: entry.value for entry in onnx.load(tmp_path / "x.onnx").metadata_props}
    assert json.loads(carried["privacy.json"]) == STATEMENT and carried["MODEL_CARD.md"] == "# Card"


def test_tflite(generator, expected, tmp_path):
    assert main(["convert", "--model", str(generator.path), "--output", str(tmp_path / "x.tflite")]) == 0
    interpreter = tf.lite.Interpreter(str(tmp_path / "x.tflite"))
    run = interpreter.get_signature_runner()
    np.testing.assert_allclose(run(latents=LATENTS, labels=LABELS)["images"], expected, atol=1e-6)
    with zipfile.ZipFile(tmp_path / "x.tflite") as archive:
        assert json.loads(archive.read("privacy.json")) == STATEMENT


@pytest.mark.parametrize("source", [
    lambda: clusters(weights=((1.0, 1.0, 1.0), (3.0, 0.0, 1.0))),
    lambda: Generator(SHAPE, 2, 3, units=4, filters=4, enlarge=2),
    lambda: PrototypeGenerator(SHAPE, np.arange(2 * 3 * 16, dtype=np.uint8).reshape(2, 3, 4, 4, 1), np.ones((2, 3)),
                               True, enlarge=2)], ids=["clusters", "enlarged", "prototypes"])
def test_images_with_warp_and_grain_convert(source, tmp_path):
    """What DataLens+ exports is made of operations that both formats have."""
    made = WarpedGenerator(SHAPE, [source()], 1.0, 0.1, 0.5)
    path = export_generator(made, tmp_path / "saved", latent_dim=made.latent_dim, latent_distribution="normal",
                            num_classes=2, class_names=["a", "b"], assets={"privacy.json": json.dumps(STATEMENT)})
    for name in ("x.onnx", "x.tflite"):
        assert main(["convert", "--model", str(path), "--output", str(tmp_path / name)]) == 0
    inputs = {"latents": np.random.default_rng(0).normal(size=(50, made.latent_dim)).astype(np.float32),
              "labels": np.arange(50) % 2}
    expected = load_generator(path).model.signatures["from_latents"](
        **{name: tf.constant(value) for name, value in inputs.items()})["images"]
    session = onnxruntime.InferenceSession(tmp_path / "x.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["images"], inputs)[0], expected, atol=1e-5)
    lite = tf.lite.Interpreter(str(tmp_path / "x.tflite")).get_signature_runner()
    np.testing.assert_allclose(lite(**inputs)["images"], expected, atol=1e-5)


@pytest.fixture(scope="module", name="runtime")
def fixture_runtime(tmp_path_factory):
    """The npm package's folder `dist`."""
    if not all(map(shutil.which, ("npm", "chromium", "chromedriver"))):
        pytest.skip("needs npm, chromium and chromedriver")
    folder = tmp_path_factory.mktemp("npm")
    subprocess.run(["npm", "pack", "--silent", convert._WEB_PACKAGE], cwd=folder, check=True, capture_output=True)
    shutil.unpack_archive(next(folder.glob("*.tgz")), folder)
    return folder / "package" / "dist"


@pytest.fixture(scope="module", name="browser")
def fixture_browser(generator, runtime, tmp_path_factory):
    """Has opened the page from the disk, without network."""
    page = tmp_path_factory.mktemp("page") / "generator.html"
    assert main(["convert", "--model", str(generator.path), "--output", str(page), "--runtime_dir", str(runtime)]) == 0
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=900,900",
                     "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(argument)
    chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    chromium.get(page.as_uri())
    WebDriverWait(chromium, 120).until(lambda b: "computed here" in status(b) or "cannot" in status(b))
    yield chromium
    chromium.quit()


def status(browser):
    return browser.find_element("id", "status").text


@pytest.mark.slow
class TestPage:

    def test_it_says_what_holds(self, browser):
        promise = browser.find_element("id", "promise").text
        assert f"epsilon = {round_up(STATEMENT['epsilon'])}" in promise and "Adjacency: replace-one" in promise
        assert "Not covered" in browser.find_element("tag name", "pre").get_attribute("textContent")

    def test_its_images_are_the_generators(self, browser, expected):
        images = browser.execute_async_script(
            "const [z, y, done] = arguments; generate(new Float32Array(z), y).then((x) => done(Array.from(x)));",
            LATENTS.ravel().tolist(), LABELS.tolist())
        np.testing.assert_allclose(np.reshape(images, expected.shape), expected, atol=1e-5)

    def test_a_click_draws_others_of_that_class(self, browser):
        buttons = browser.find_elements("css selector", "#classes button")
        assert [button.text for button in buttons] == ["<!--<script>", "dog", "</script>"]
        seen = set()
        images = browser.find_element("id", "images")
        for _ in range(2):
            wanted = str(int(images.get_attribute("data-draws")) + 1)
            buttons[1].click()
            WebDriverWait(browser, 30).until(lambda _, wanted=wanted: images.get_attribute("data-draws") == wanted)
            assert "“dog”" in status(browser)
            seen.add(images.screenshot_as_png)
        shown = [np.asarray(Image.open(io.BytesIO(picture))) for picture in seen]
        assert len(shown) == 2 and all(len(np.unique(picture)) > 50 for picture in shown)

    def test_it_asks_the_network_for_nothing(self, browser):
        asked = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert all(name.startswith(("blob:", "data:")) for name in asked), asked
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]

    def test_its_policy_stops_scripts_and_requests_that_are_not_its_own(self, browser):
        assert smuggled(browser) == {}
        policy = browser.find_element("css selector", "meta[http-equiv=Content-Security-Policy]")
        assert "'unsafe-inline'; script-src 'sha256-" in policy.get_attribute("content")

    def test_names_do_not_change_the_direction_of_writing(self, generator, runtime, tmp_path):
        path = copy_export(generator.path, tmp_path, assets={"privacy.json": json.dumps(STATEMENT | {"dataset": BIDI})})
        settings = json.loads((path / "assets.extra/model.json").read_text())
        (path / "assets.extra/model.json").write_text(json.dumps(settings | {"class_names": [BIDI, "b", "c"]}))
        (path / "assets.extra/SHA256SUMS").unlink()
        page = convert.to_page(load_generator(path), runtime).decode()
        assert "abc\ufffddef" in page and "\u202e" not in page


class TestRefusals:

    def test_no_runtime(self, generator, tmp_path):
        with pytest.raises(DataLensError, match="Cannot get onnxruntime-web from .*--runtime_dir"):
            convert.to_page(generator, tmp_path)

    def test_no_statement(self, generator, tmp_path):
        path = copy_export(generator.path, tmp_path)
        for name in ("privacy.json", "SHA256SUMS"):
            (path / "assets.extra" / name).unlink()
        with pytest.raises(InvalidArgumentError, match="to hold a privacy statement"):
            convert.to_page(load_generator(path))

    @pytest.mark.parametrize("words, message", [
        (["--output", "x.zip"], "to end in .onnx, .tflite, .html"),
        (["--output", "x.onnx", "--runtime_dir", "."], "Expected no --runtime_dir")])
    def test_command_lines(self, generator, words, message, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["convert", "--model", str(generator.path), *words]) == 2
        assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
