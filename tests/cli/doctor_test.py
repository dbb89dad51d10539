"""`datalens doctor`: what works, what is worth knowing, and what is broken."""

import importlib.metadata
import os
import re
import sys

import pytest

from datalens_tf.cli import doctor


@pytest.fixture(name="data", autouse=True)
def fixture_data(tmp_path, monkeypatch):
    (tmp_path / "data" / "mnist" / "3.0.1").mkdir(parents=True)
    (tmp_path / "data" / "mnist" / "3.0.1" / "dataset_info.json").touch()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    for name in doctor._THREADS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "data"


def test_a_machine_that_works(datalens, data):
    status, out, err = datalens("doctor")
    lines = dict(line[8:].split(None, 1) for line in out.splitlines() if line[:7].strip() in ("ok", "note"))
    assert (status, err) == (0, "") and out.splitlines()[-1] == "Nothing is broken."
    assert lines["Python"].startswith(sys.version.split()[0])
    assert re.fullmatch(r"2\.[\d.]+ with (tf-)?keras 2\.[\d.]+, (no|\d+) GPUs?", lines["TensorFlow"])
    assert lines["cores"].startswith(f"{len(os.sched_getaffinity(0))} of ") and lines["threads"] == "one per core"
    assert "GiB" in lines["memory"] and lines["data"] == f"{data}: mnist"


@pytest.mark.parametrize("change, name, said", [
    (lambda patch, data: patch.setenv("TFDS_DATA_DIR", str(data / "none")), "data", "none: there is no such folder."),
    (lambda patch, data: patch.setattr(doctor, "_LEAST_MEMORY", 1e6), "memory", "less than the"),
    (lambda patch, data: patch.setattr(doctor, "_LEAST_SPACE", 1e9), "temporary", "too little for a run"),
    (lambda patch, data: patch.setitem(sys.modules, "tensorflow", None), "TensorFlow", "does not import"),
    (lambda patch, data: patch.chdir("/proc"), "this folder", "/proc: "),
])
def test_what_is_broken_ends_with_1_and_says_how_to_mend_it(change, name, said, datalens, data, monkeypatch):
    change(monkeypatch, data)
    status, out, err = datalens("doctor")
    assert status == 1 and "Nothing is broken" not in out
    line = next(line for line in out.splitlines() if line.startswith("BROKEN"))
    assert name in err and said in next(line for line in out.splitlines() if line.startswith(f"BROKEN  {name}")), line
    assert len(err.splitlines()) == 1


def test_packages_are_compared_with_what_the_package_asks_for(monkeypatch):
    asked = ["numpy<2", "no-such-package>=1", "scipy==0.1", 'tqdm==0.1; extra == "eval"']
    about = importlib.metadata.metadata("numpy")
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: about)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: asked)
    monkeypatch.setattr(about, "get_all", lambda name: ["eval"], raising=False)
    found = {finding.name: finding for finding in doctor._versions()}
    assert found["packages"].mark == "BROKEN" and "no-such-package is missing; scipy is" in found["packages"].text
    assert found["extra eval"].mark == "note" and "lacks tqdm" in found["extra eval"].text


def test_what_the_command_line_sets_itself_on_one_core_is_no_news(monkeypatch, datalens):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert "ok      threads          one per core" in datalens("doctor")[1]


def test_threads_that_are_set_are_told(monkeypatch, datalens):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    status, out, _ = datalens("doctor")
    assert status == 0 and "note    threads          OMP_NUM_THREADS=1 may leave cores without work" in out
