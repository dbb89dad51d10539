"""A cell of a table is trained once, continued where it stopped, and says what it took."""

import importlib
import json
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "run_scripts" / "reproduce"


@pytest.fixture(name="cells", scope="module")
def fixture_cells():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("cells")
    sys.path.remove(str(FOLDER))
    del sys.modules["cells"]


def test_what_is_done_is_not_done_again(cells, tmp_path, monkeypatch):
    folder, calls = tmp_path / "cell", []
    monkeypatch.setattr(cells, "call", lambda costs, what, *words: calls.append([what, words[0], words[1:]]))
    train, evaluate = ["--method=dp_merf"], ["--metrics=utility"]
    cells.fill(folder, train, evaluate)
    assert [call[:2] for call in calls] == [["training", "train"], ["evaluation", "evaluate"]]
    assert calls[0][2] == (f"--output_dir={folder}", *train) and calls[1][2] == (f"--samples={folder}", *evaluate)
    folder.mkdir()
    for file, expected in (("config.json", [("--resume", f"--output_dir={folder}", *train),
                                            (f"--samples={folder}", *evaluate)]),
                           ("privacy.json", [(f"--samples={folder}", *evaluate)]),
                           ("private/evaluation/metrics.json", [])):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("{}")
        calls.clear()
        cells.fill(folder, train, evaluate)
        assert [call[2] for call in calls] == expected


def test_costs_add_up_and_a_failure_ends_the_script_with_its_status(cells, tmp_path):
    costs = tmp_path / "costs" / "cell.json"
    for sitting in (1, 2):
        with pytest.raises(SystemExit) as error:
            cells.call(costs, "training", "train", "--method=none_such")
        known = json.loads(costs.read_text())["training"]
        assert error.value.code == 2 and known["sittings"] == sitting and known["peak_memory_gib"] > 0
        assert known["seconds"] > 0.1 * sitting
