"""The report: complete, self-contained, safe with hostile names, and right in a real browser."""

import dataclasses
import html
import json
import pathlib
import re
import shutil

import pytest
from selenium import webdriver

from datalens_tf.errors import CheckpointError
from datalens_tf.evaluation import report
from datalens_tf.evaluation.evaluate import Evaluation
from datalens_tf.evaluation.report import (
    RunFacts,
    render_report,
    run_charts,
    seconds_per_step,
    training_command,
    training_log,
    write_public_report,
    write_report,
)
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import preset
from tests.evaluation.evaluation_data import all_metrics, real
from tests.serving.browser import smuggled

CHECKPOINT = pathlib.Path(__file__).parents[2] / "checkpoints" / "mnist_eps1"


@pytest.fixture(scope="module", name="facts")
def fixture_facts():
    """Those of a released run, and logs that it does not have."""
    return dataclasses.replace(RunFacts.read(CHECKPOINT), losses={1: 0.5, 2: 0.4, 3: 0.3}, seconds_per_step=17.25)


@pytest.fixture(scope="module", name="path")
def fixture_path(tmp_path_factory, facts):
    train = real("train")
    return write_report(tmp_path_factory.mktemp("report"), all_metrics(), facts, (train.images, train.labels))


def test_it_says_what_was_found(path, facts):
    text = path.read_text()
    metrics = all_metrics().metrics
    for expected in (
            "0.9975", "1.3191", "replace-one", f"{100 * metrics['utility']['accuracy_mean']:.1f} %", "not FID",
            f"{metrics['quality']['inception_score']['mean']:.2f}", "datalens train --output_dir RUN --preset mnist",
            "--output_contrast 2.0", "epsilon does not cover", "do not follow it", metrics["cost"]["processor"],
            "What was released", "17.25 seconds per step"):
        assert expected.lower() in text.lower(), expected
    assert facts.statement_text.splitlines()[0] in text


def test_charts_lie_beside_it(path):
    assert {chart.stem for chart in (path.parent / "charts").glob("*.png")} == {
        "confusion", "roc", "classifiers", "pca", "tsne", "distances", "budget", "accuracy", "training"}


def test_it_refers_to_nothing_outside(path):
    references = re.findall(r"""(?:src|href|url|action)\s*[=(]\s*["']?([^"'\s>)]+)""", path.read_text())
    assert len(references) >= 10 and all(reference.startswith(("data:", "#")) for reference in references)
    assert "<script" not in path.read_text()


@pytest.fixture(scope="module", name="browser")
def fixture_browser():
    """Headless Chromium; `.ci/run` installs it."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (binary and driver):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chromium
    chromium.quit()


@pytest.mark.parametrize("width, scheme", [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])
@pytest.mark.slow
def test_a_browser_shows_it(path, browser, width, scheme):
    browser.get_log("performance"), browser.get_log("browser")  # Those of the page before.
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                            {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [message["params"]["request"]["url"] for message in messages
             if message["method"] == "Network.requestWillBeSent"]
    assert path.as_uri() in asked and all(url == path.as_uri() or url.startswith("data:") for url in asked)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(
        "return [...document.images].length > 8 && [...document.images].every(i => i.complete && i.naturalWidth > 0)")

    def colours(selector):
        style = f"getComputedStyle(document.querySelector('{selector}'))"
        found = [browser.execute_script(f"return {style}.{name}") for name in ("color", "backgroundColor")]
        return [sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3 for colour in found]

    for selector in ("body", "section.warn"):
        ink, paper = colours(selector)
        assert (paper < ink) == (scheme == "dark") and abs(ink - paper) > 90


@pytest.mark.slow
def test_its_policy_stops_scripts_and_requests(path, browser):
    browser.get(path.as_uri())
    assert smuggled(browser) == {}


def test_names_from_data_are_text(facts):
    metrics = json.loads(json.dumps(all_metrics().metrics))
    hostile = "<script>alert('x')</script>\u202e"
    metrics["dataset"] = metrics["source"] = hostile
    metrics["utility"]["class_names"][0] = hostile
    page = render_report(metrics, {}, dataclasses.replace(facts, statement_text=hostile), b"")
    assert "<script" not in page and page.count("&lt;script&gt;") >= 4
    assert "\u202e" not in page


def test_samples_alone_and_single_sections_have_a_report(tmp_path):
    train = real("train")
    for section in ("utility", "classifiers", "quality"):
        metrics = {name: value for name, value in all_metrics().metrics.items()
                   if name not in {"utility", "classifiers", "quality"} - {section}}
        path = write_report(tmp_path, Evaluation(metrics=metrics, charts={}), None, (train.images / 255, train.labels))
        assert "What is guaranteed" not in path.read_text() and "datalens train" not in path.read_text()


def test_a_run_without_a_guarantee_says_so(facts):
    statement = dict(facts.statement, private=False, epsilon=None,
                     epsilon_by_accountant=dict.fromkeys(facts.statement["epsilon_by_accountant"]))
    facts = dataclasses.replace(facts, statement=statement)
    page = render_report(all_metrics().metrics, report.run_charts(facts, all_metrics().metrics), facts, b"")
    assert "not private" in page and "&epsilon; = " not in page.split("<section>")[0]


def test_the_command_repeats_the_run():
    for config in (preset("mnist", 1), preset("mnist", 1).replace(num_teachers=7, clip=None, accountant="pld"),
                   DataLensConfig(dataset="npz:x.npz", num_teachers=5)):
        words = training_command(config).split()[4:]
        flags = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2])}
        base = preset(flags.pop("preset"), float(flags.pop("epsilon"))) if "preset" in flags else DataLensConfig()
        kinds = {"num_teachers": int, "clip": lambda text: None}
        assert base.replace(**{name: kinds.get(name, str)(value) for name, value in flags.items()}) == config


def test_the_students_losses_come_from_its_logs(tmp_path):
    import tensorflow as tf

    assert training_log(tmp_path / "none") == {}
    for part in ((3, 4), (1, 2)):  # A resumed run has several files.
        with tf.summary.create_file_writer(str(tmp_path)).as_default():
            for step in part:
                tf.summary.scalar("student_loss", step / 10, step=step)
    losses = training_log(tmp_path)
    assert losses == pytest.approx({1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}) and list(losses) == [1, 2, 3, 4]


def test_the_time_of_a_step_comes_from_the_private_log(tmp_path):
    log = tmp_path / "training.jsonl"
    assert seconds_per_step(log) is None
    times = [(1, 2.0), (2, 4.0), (4, 10.0), (5, 1.0), (6, 3.5)]  # Resumed after step 4.
    log.write_text("".join(json.dumps({"step": step, "seconds": seconds}) + "\n" for step, seconds in times))
    assert seconds_per_step(log) == 2.5
    log.write_text(log.read_text()[:-5])
    assert seconds_per_step(log) is None


@pytest.mark.slow
def test_the_public_report_says_nothing_that_was_measured_on_real_records(tmp_path, facts, browser):
    train = real("train")
    path = write_public_report(tmp_path, facts, (train.images, train.labels))
    text = path.read_text()
    for expected in ("0.9975", "1.3191", "What is guaranteed", "Privacy budget", "Training of the generator",
                     "The synthetic images", "datalens train --output_dir RUN --preset mnist", "--output_contrast 2.0"):
        assert expected in text, expected
    assert facts.statement_text.splitlines()[0] in text
    for private in ("accura", "classif", "distance", "Utility", "t-SNE", "Membership", "seconds per", "published",
                    "evaluation took"):
        assert private not in html.unescape(text).replace(facts.statement_text, ""), private
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    browser.get(path.as_uri())
    assert browser.execute_script("return document.images.length") == 3


@pytest.mark.parametrize("change", [
    None, {"epsilon": "0.9"}, {"epsilon": 0.5}, {"epsilon_by_accountant": {"gdp": None}}, {"num_charges": 1.5},
    {"noise_multiplier_per_step": 0}, {"private": None}, {"epsilon_budget": [1]}, {"delta": float("nan")}])
def test_damaged_runs_are_one_clear_line(tmp_path, change):
    """Before an hour is spent on evaluating, not after."""
    shutil.copytree(CHECKPOINT, tmp_path / "run")
    statement = json.loads((CHECKPOINT / "privacy.json").read_text())
    (tmp_path / "run" / "privacy.json").write_text("{" if change is None else json.dumps(statement | change))
    with pytest.raises(CheckpointError, match="Cannot read the privacy statement") as caught:
        RunFacts.read(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_an_exported_generator_says_its_guarantee(tmp_path):
    facts = RunFacts.read_export(CHECKPOINT / "generator" / "1")
    assert facts.config is None and facts.statement["epsilon"] == RunFacts.read(CHECKPOINT).statement["epsilon"]
    result = Evaluation(metrics=all_metrics().metrics | {"dataset": "mnist"}, charts={})
    page = render_report(result.metrics, run_charts(facts, result.metrics), facts, b"")
    assert "0.9975" in page and "What is guaranteed" in page and "published for DataLens" in page
    assert "datalens train" not in page  # Settings are not in there.
    (tmp_path / "assets.extra").mkdir()
    assert RunFacts.read_export(tmp_path) is None
    for nothing in ("{}", "[1]", "7", "{"):
        (tmp_path / "assets.extra" / "privacy.json").write_text(nothing)
        with pytest.raises(CheckpointError, match="Cannot read the privacy statement"):
            RunFacts.read_export(tmp_path)
