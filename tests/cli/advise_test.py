"""`datalens advise`: what to expect, without data."""

import pytest

from datalens_tf.planning import measured
from tests.cli.commands import refused
from tests.planning.measured_test import TEXT

WORDS = "--num_records=3000", "--color=grey", "--image_size=28", "--epsilon=3"


@pytest.fixture(autouse=True)
def fixture_table(tmp_path, monkeypatch):
    (tmp_path / "measured.csv").write_text(TEXT)
    monkeypatch.setattr(measured, "TABLE", tmp_path / "measured.csv")


def test_everything_that_a_newcomer_asks_is_told(datalens):
    status, out, _ = datalens("advise", *WORDS)
    assert status == 0
    for text in ("3,000 grey pictures of 28 x 28 in 10 classes", "is right 64.1 % of the time at most",
                 "one in 100,000", "datalens_plus", "69 to 100 % of what real pictures teach a classifier",
                 "0.90 on MNIST", "minutes, by that run", "up to about 0.8 GiB, of the ", "WHAT HELPS", "epsilon 9"):
        assert text in out, text
    assert "6,000 records" not in out  # It would help by less than a percent, by the table.
    _, out, _ = datalens("advise", *WORDS, "--epsilon=1")
    for text in ("WHAT HELPS", "6,000 records", "5 classes", "epsilon 3"):
        assert text in out, text


def test_a_method_may_be_named_and_nothing_is_made_up(datalens):
    _, out, _ = datalens("advise", *WORDS, "--method=dp_merf")
    assert "dp_merf" in out and "0.70 on MNIST" in out
    _, out, _ = datalens("advise", *WORDS, "--method=gs_wgan")
    assert "nothing like it was measured with gs_wgan" in out and "WHAT HELPS" not in out


def test_noise_is_called_so(datalens):
    _, out, _ = datalens("advise", "--num_records=2000", "--epsilon=3")
    assert "Most of what these images show will be noise." not in out
    text = TEXT.replace("CIFAR-10,3000,10,32,32,3,3,datalens_plus,0.3", "CIFAR-10,3000,10,32,32,3,3,datalens_plus,0.12")
    measured.TABLE.write_text(text)
    _, out, _ = datalens("advise", "--num_records=2000", "--epsilon=3")
    assert "Most of what these images show will be noise." in out


def test_fewer_records_than_were_ever_measured_are_said_to_give_noise(datalens):
    _, out, _ = datalens("advise", "--num_records=12", "--num_classes=2")
    assert "none: these are fewer records" in out and "the images will be noise" in out


@pytest.mark.parametrize("words, text", [
    (["--num_records=0"], "num_records=0"), (["--num_records=9", "--epsilon=0"], "epsilon=0"),
    (["--num_records=9", "--method=datalens_pluss"], "datalens_plus"), ([], "--num_records")])
def test_mistakes_are_one_line(datalens, words, text):
    refused(datalens("advise", *words), text)


def test_far_larger_images_than_were_ever_measured_are_not_promised(datalens):
    _, out, _ = datalens("advise", "--num_records=3000", "--color=grey", "--image_size=512", "--epsilon=3")
    assert "  worth          0 to " in out and "28 x 28 at most" in out and "hours, by that run" in out
    _, out, _ = datalens("advise", *WORDS)
    assert "pictures as large" not in out and "memory of this machine:" not in out


def test_images_that_do_not_fit_are_warned_of(datalens):
    _, out, _ = datalens("advise", "--num_records=1000000000", "--color=grey", "--image_size=28", "--method=dp_merf",
                         "--epsilon=0.000003")
    assert "does not fit into the memory of this machine" in out
