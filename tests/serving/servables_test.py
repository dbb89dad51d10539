"""Models that are served: only what was written is loaded, and what fails is tried again when it is other."""

import json
import shutil

import numpy as np
import pytest

from datalens_tf.errors import CheckpointError, LedgerError
from datalens_tf.serving.export import export_generator
from datalens_tf.serving.servables import Models, Refused, Servable
from tests.serving.released import STATEMENT
from tests.serving.tiny_generator import SETTINGS, TinyGenerator


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    export_generator(TinyGenerator(), tmp_path / "tiny", **SETTINGS, assets={"privacy.json": json.dumps(STATEMENT)})
    return tmp_path / "tiny"


def test_a_statement_that_is_not_true_is_not_served(folder):
    extra = folder / "1" / "assets.extra"
    prices = dict.fromkeys(STATEMENT["epsilon_by_accountant"], 0.1)
    (extra / "privacy.json").write_text(json.dumps(STATEMENT | {"epsilon": 0.1, "epsilon_by_accountant": prices}))
    with pytest.raises(CheckpointError, match="privacy.json was changed"):
        Models({"tiny": folder})
    (extra / "SHA256SUMS").unlink()
    with pytest.raises(LedgerError, match="states epsilon 0.1"):
        Models({"tiny": folder})


def test_a_version_that_cannot_be_loaded_is_named_once_and_tried_again_when_it_is_other(folder, capsys, monkeypatch):
    models, tries, load = Models({"tiny": folder}), [], Servable.load
    monkeypatch.setattr(Servable, "load", lambda name, place: tries.append(place.name) or load(name, place))
    shutil.copytree(folder / "1", folder / "2")
    shutil.move(folder / "2" / "variables" / "variables.index", folder.parent)
    for _ in range(3):
        models.refresh()
    assert tries == ["2"] and [served.version for served in models.versions("tiny")] == [1]
    assert "variables.index is missing" in (told := capsys.readouterr().err) and len(told.splitlines()) == 1
    shutil.move(folder.parent / "variables.index", folder / "2" / "variables")
    models.refresh()
    assert tries == ["2", "2"] and models.versions("tiny")[0].version == 2
    assert capsys.readouterr().err == "datalens: tiny has a new version 2\n"


def test_the_folder_of_one_version_is_refused_with_its_parent(folder):
    with pytest.raises(CheckpointError, match=f"one version of a model: give the folder of all its versions, {folder}"):
        Models({"tiny": folder / "1"})


def test_what_goes_wrong_is_not_counted_as_answered(folder):
    models = Models({"tiny": folder})

    def wrong(definition):
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        models.predict("tiny", None, "", wrong)
    with pytest.raises(Refused):
        models.predict("tiny", None, "", lambda definition: {"labels": np.array([3])})
    counts = {sample.labels["status"]: sample.value for metric in models.metrics.collect()
              for sample in metric.samples if sample.name == ":tensorflow:serving:request_count"}
    assert counts == {"INTERNAL": 1.0, "INVALID_ARGUMENT": 1.0}
