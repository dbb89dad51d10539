"""Pages for the owner of a run: who may look, what is shown, and that it works in a real browser."""

import io
import pathlib
import shutil
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait
from starlette.testclient import TestClient

from datalens_tf.cli import main
from datalens_tf.serving import ui
from tests.serving.released import ENTRY, STATEMENT

TOKEN = "a token that nobody guesses"
NAMES = ["0", "<script>alert(1)</script>", "猫"]


def draw(count, labels, seed):
    """Images 8x8 that tell their label and seed."""
    images = np.zeros((count, 8, 8, 1), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 1, 0] = labels, seed
    return images, labels


@pytest.fixture(name="report")
def fixture_report(tmp_path):
    path = pathlib.Path(tmp_path, "report.html")
    path.write_text("<p>the report</p>")
    return path


@pytest.fixture(name="client")
def fixture_client(report):
    pages = ui.application(draw, draw, NAMES, STATEMENT, {"report": report}, token=TOKEN)
    return TestClient(pages, base_url="http://127.0.0.1:8502", follow_redirects=False)


@pytest.fixture(name="allowed")
def fixture_allowed(client):
    """A client that opened the address which was printed."""
    answer = client.get("/", params={"token": TOKEN})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=strict" in answer.headers["set-cookie"]
    return client


@pytest.mark.parametrize("path", ["/", "/sheet.png", "/images.npz", "/images.zip", "/report"])
def test_without_the_token_nothing_is_told(client, path):
    for params in ({}, {"token": "another"}, {"token": ""}):
        answer = client.get(path, params=params)
        assert answer.status_code == 401 and "mnist" not in answer.text and "set-cookie" not in answer.headers


def test_a_page_of_a_stranger_cannot_ask_by_its_own_name(allowed):
    assert allowed.get("/").status_code == 200
    assert allowed.get("/", headers={"Host": "stranger.example"}).status_code == 400


def test_the_first_page_has_the_guarantee_and_all_classes(allowed):
    answer = allowed.get("/")
    assert "epsilon = 0.9975" in answer.text and "The privacy statement" in answer.text
    assert "猫" in answer.text and "<script" not in answer.text and "&lt;script&gt;" in answer.text
    assert answer.text.count("<img ") == 3 and "/report" in answer.text and "private_report" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert allowed.get("/?label=2&seed=5").text.count("<img ") == 1
    assert allowed.get("/report").text == "<p>the report</p>" and allowed.get("/private_report").status_code == 404


def test_images_are_by_class_and_seed(allowed):
    with np.load(io.BytesIO(allowed.get("/images.npz?label=1&seed=7&count=5").content)) as arrays:
        assert arrays["y"].tolist() == [1] * 5 and arrays["x"][:, 0, :2, 0].tolist() == [[1, 7]] * 5
    with np.load(io.BytesIO(allowed.get("/images.npz?count=4").content)) as arrays:
        assert arrays["y"].tolist() == [0, 1, 2, 0]
    with zipfile.ZipFile(io.BytesIO(allowed.get("/images.zip?count=4&seed=9").content)) as archive:
        assert archive.namelist() == ["0/00000.png", "1/00001.png", "2/00002.png", "0/00003.png"]
        assert np.asarray(Image.open(archive.open("2/00002.png")))[0, :2].tolist() == [2, 9]
    assert Image.open(io.BytesIO(allowed.get("/sheet.png").content)).size == (12 * 8 * 3, 3 * 8 * 3)


@pytest.mark.parametrize("query", ["label=3", "label=-1", "label=x", "seed=-1", "seed=99999999999999", "count=0",
                                   "count=1025", "count=1e3", "label=²"])
def test_what_is_out_of_bounds_is_refused(allowed, query):
    for path in ("/", "/sheet.png", "/images.npz"):
        answer = allowed.get(f"{path}?{query}")
        assert answer.status_code == 400 and answer.text.startswith("Expected ") and "\n" not in answer.text


@pytest.mark.parametrize("statement, text", [
    (None, "No statement."), (STATEMENT | {"private": False}, "Not private.")])
def test_what_is_not_private_is_called_so(statement, text):
    if statement is not None:
        statement |= {"epsilon": None, "epsilon_by_accountant": {}}
    client = TestClient(ui.application(draw, draw, NAMES, statement, {}, token=TOKEN), base_url="http://localhost")
    assert text in client.get("/", params={"token": TOKEN}).text


def test_mistakes_are_one_line(tmp_path, capsys):
    assert main(["ui", str(tmp_path)]) == 2 and main(["ui", str(ENTRY), "--port=99999"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 2 and all(line.startswith("datalens: ") for line in lines)


@pytest.mark.slow
def test_in_a_browser(tmp_path):
    with subprocess.Popen([sys.executable, "-m", "datalens_tf", "ui", str(ENTRY), "--port=0"],
                          stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().strip()
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=400,900"):
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path)})
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            browser.get(address)
            assert "token" not in browser.current_url
            browser.implicitly_wait(60)
            Select(browser.find_element(By.NAME, "label")).select_by_visible_text("3")
            browser.find_element(By.TAG_NAME, "button").click()
            # The page of all classes, which has an image of this class as well, may be there until the other one is.
            WebDriverWait(browser, 60).until(lambda b: len(b.find_elements(By.TAG_NAME, "img")) == 1)
            image = browser.find_element(By.CSS_SELECTOR, "img[alt='12 images of 3']")
            wide = "return [arguments[0].naturalWidth, document.documentElement.scrollWidth <= window.innerWidth]"
            assert browser.execute_script(wide, image) == [12 * 28 * 3, True]  # Nothing is wider than a phone.
            assert "epsilon" in browser.find_element(By.ID, "promise").text
            browser.find_element(By.LINK_TEXT, "The report").click()
            WebDriverWait(browser, 60).until(lambda b: STATEMENT["dataset"] in b.title)
        finally:
            browser.quit()
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
