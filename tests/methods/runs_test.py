"""The life of a run: what is remembered of a request, and what is told before anything is trained."""

import numpy as np

from datalens_tf.data.datasets import as_dataset
from datalens_tf.methods import runs
from datalens_tf.planning import measured

HEAD = "dataset,num_records,num_classes,height,width,channels,epsilon,method,accuracy,real_accuracy,minutes\n"


def request(tmp_path, **more):
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), np.uint8)
    return runs.Request(method="dp_merf", given={"dataset": "mine", "epsilon": 1.0}, data_dir=str(tmp_path),
                        records=as_dataset(images, np.arange(60) % 3, 3, name="mine"), **more)


def test_a_resumed_run_knows_the_folder_of_its_data_set(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = runs.planned(request("data"))
    files = runs.create(plan, tmp_path / "run")
    files.config.write_text(plan.config.to_json())
    assert runs.read_sources(tmp_path / "run") == {"dataset": "mine", "data_dir": str(tmp_path / "data")}
    again = runs.Request(records=plan.dataset, given={"dataset": "mine"})
    assert runs.resumed(again, tmp_path / "run").request.data_dir == str(tmp_path / "data")


def test_noise_is_warned_of_before_it_is_paid_for(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "TABLE", tmp_path / "measured.csv")
    for accuracy, warns in ((0.4, True), (0.9, False)):
        measured.TABLE.write_text(f"{HEAD}Toys,60,3,8,8,1,1,dp_merf,{accuracy},0.95,1\n")
        warning = runs.planned(request(tmp_path)).warning
        assert (warning is not None and "will be noise" in warning and "at most 36 %" in warning) is warns
    measured.TABLE.write_text(HEAD)
    assert runs.planned(request(tmp_path)).warning is None
