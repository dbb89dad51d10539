"""Classes that are declared on the command line: how they are read, and that every command keeps to them."""

import json

import numpy as np
import pytest

from datalens_tf import cli
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataError
from datalens_tf.evaluation import evaluate
from datalens_tf.serving.export import read_metadata

MERF = ["train", "--method=dp_merf", "--num_features=8", "--fit_steps=1", "--epsilon=10", "--generator_filters=4",
        "--generator_units=8", "--no_evaluation"]
COMMANDS = {"train": MERF,
            "classify": ["classify", "--network=large", "--batch_size=20", "--num_steps=1", "--noise_multiplier=3"],
            "pate-classify": ["pate-classify", "--num_teachers=4", "--num_queries=4", "--student_steps=1",
                              "--aggregator=gnmax"]}


def archive(path, num_undeclared, last=9):
    """Digits of the classes 0 to 2, and some records of other labels."""
    arrays = {}
    for split, suffix in (("train", ""), ("test", "_test")):
        digits = load_dataset("digits", split=split, classes=("0", "1", "2"))
        used = slice(None) if digits.usable is None else digits.usable
        arrays |= {f"x{suffix}": digits.images[used][:60], f"y{suffix}": digits.labels[used][:60].copy()}
    arrays["y"][:num_undeclared] = last
    np.savez(path, **arrays)
    return f"npz:{path}"


@pytest.mark.parametrize("command", [
    "train", pytest.param("classify", marks=pytest.mark.slow), pytest.param("pate-classify", marks=pytest.mark.slow)])
def test_nothing_public_tells_how_many_records_are_of_undeclared_classes(command, datalens, tmp_path):
    """Neither output nor files differ between neighbours, but for names that are random and what noise decides."""
    seen = []
    for count, label in ((1, 9), (2, 70_000)):
        folder = tmp_path / str(count)
        folder.mkdir()
        data, run = archive(folder / "data.npz", count, label), folder / "run"
        status, out, err = datalens(*COMMANDS[command], f"--dataset={data}", "--classes=cat,dog,emu",
                                    f"--output_dir={run}")
        assert status == 0 and "warning" not in err, err
        assert "70000" not in out + err and "undeclared" not in out + err
        statement, config = (json.loads((run / name).read_text()) for name in ("privacy.json", "config.json"))
        assert statement["num_records"] == 60 and config["num_classes"] == 3
        assert config["classes"] == ["cat", "dog", "emu"]
        assert "declared to be public" in (run / "privacy.txt").read_text().replace("\n", " ")
        for name in ("run_id", "ledger_head", "dataset"):
            statement.pop(name, None), config.pop(name, None)
        seen.append((statement, config, sorted(path.name for path in run.iterdir()), len(out.splitlines())))
    assert seen[0] == seen[1]


def test_a_run_keeps_to_its_classes(datalens, tmp_path, monkeypatch):
    data, run = archive(tmp_path / "data.npz", 2), tmp_path / "run"
    (tmp_path / "classes.txt").write_text("cat\n\n  dog, wild \nemu\n")
    words = [*MERF, f"--dataset={data}", f"--output_dir={run}"]
    assert datalens(*words, f"--classes={tmp_path / 'classes.txt'}")[0] == 0
    names = ["cat", "dog, wild", "emu"]
    assert json.loads((run / "config.json").read_text())["classes"] == names
    ledger = (run / "ledger.jsonl").read_bytes()
    (tmp_path / "classes.txt").unlink()  # They are in the run.
    assert datalens("train", f"--output_dir={run}", "--resume", "--no_evaluation")[0] == 0
    assert (run / "ledger.jsonl").read_bytes() == ledger
    status, _, err = datalens("train", f"--output_dir={run}", "--resume", "--classes=cat,dog,yak")
    assert status == 2 and "was trained with classes=" in err
    assert datalens("export", f"--run_dir={run}", f"--output_dir={tmp_path / 'served'}")[0] == 0
    assert list(read_metadata(tmp_path / "served" / "1")["class_names"]) == names

    def seen(draw, train, test, **kwargs):
        assert test.class_names == train.class_names == tuple(names) and test.usable is None
        raise DataError("seen")

    monkeypatch.setattr(evaluate, "evaluate", seen)
    assert "seen" in datalens("evaluate", f"--samples={run}")[2]
    assert "of the 3 classes" in datalens("evaluate", f"--samples={run}", "--classes=2")[2]


@pytest.mark.parametrize("text, names", [
    ("3", ("0", "1", "2")), ("cat, dog ,emu", ("cat", "dog", "emu")), ("none", None),
    ("1,0", ("1", "0"))])
def test_numbers_and_names(text, names):
    _, args = cli.parse(["train", "--output_dir=x", f"--classes={text}"])
    assert args.classes == names


@pytest.mark.parametrize("text, said", [
    ("1", "num_classes=1 >= 2"), ("0", "num_classes=0 >= 2"), ("10001", "at most 10,000"),
    ("9" * 400, "at most 10,000"), ("cat,cat", "classes='cat' to be named once"), ("cat,", "1 to 200 printable"),
    ("a\x1b[2J,b", "printable"), ("no_such_file", "No such file"),
    ("/", "a number, names separated by commas, or a text file"), ("", "classes=''")])
@pytest.mark.parametrize("command", ["train", "classify", "pate-classify"])
def test_other_texts_are_refused_in_one_line(text, said, command, datalens, tmp_path):
    status, out, err = datalens(command, f"--output_dir={tmp_path / 'run'}", "--dataset=digits", f"--classes={text}")
    assert (status, out, len(err.strip().splitlines())) == (2, "", 1) and said in err, err
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_no_text_or_has_one_name_is_refused(datalens, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "one").write_text("cat\n")
    for name, said in (("bytes", "it is no text"), ("one", "to be 2 to 10,000")):
        status, _, err = datalens("train", f"--output_dir={tmp_path / 'run'}", f"--classes={tmp_path / name}")
        assert status == 2 and said in err and len(err.strip().splitlines()) == 1, err
