"""The life of a run: what is remembered of a request, and what is told before anything is trained."""

import numpy as np
import pytest

from datalens_tf.accounting import delta
from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.methods import plans, runs
from datalens_tf.planning import measured

HEAD = "dataset,num_records,num_classes,height,width,channels,epsilon,method,accuracy,real_accuracy,minutes\n"


def request(tmp_path, **more):
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), np.uint8)
    return plans.Request(method="dp_merf", given={"dataset": "mine", "epsilon": 1.0}, data_dir=str(tmp_path),
                        records=as_dataset(images, np.arange(60) % 3, 3, name="mine"), **more)


def test_a_resumed_run_knows_the_folder_of_its_data_set(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = plans.planned(request("data"))
    files = plans.create(plan, tmp_path / "run")
    files.config.write_text(plan.config.to_json())
    assert runs.read_sources(tmp_path / "run") == {"dataset": "mine", "data_dir": str(tmp_path / "data")}
    again = plans.Request(records=plan.dataset, given={"dataset": "mine"})
    assert plans.resumed(again, tmp_path / "run").request.data_dir == str(tmp_path / "data")


def test_noise_is_warned_of_before_it_is_paid_for(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "TABLE", tmp_path / "measured.csv")
    for accuracy, warns in ((0.4, True), (0.9, False)):
        measured.TABLE.write_text(f"{HEAD}Toys,60,3,8,8,1,1,dp_merf,{accuracy},0.95,1\n")
        warned = plans.planned(request(tmp_path)).warnings
        assert any("will be noise" in warning and "at most 36 %" in warning for warning in warned) is warns
    measured.TABLE.write_text(HEAD)
    assert not plans.planned(request(tmp_path)).warnings
    # Fewer than ever, or on pictures of another kind.
    for channels, warns in ((1, True), (3, False)):
        measured.TABLE.write_text(f"{HEAD}Toys,60000,3,8,8,{channels},1,dp_merf,0.9,0.95,1\n")
        warned = plans.planned(request(tmp_path)).warnings
        assert any("less than was ever measured" in warning for warning in warned) is warns


def test_what_is_held_out_takes_no_part_and_stays_what_it_is(tmp_path):
    wish = request(tmp_path)
    given = {**wish.given, "holdout": 0.1}
    plan = plans.planned(plans.Request(method="dp_merf", given=given, records=wish.records))
    assert len(plan.dataset) == 54 and plan.config.holdout == 0.1
    held = plans.testing_records(plan)
    np.testing.assert_array_equal(held.images, wish.records.images[9::10])
    files = plans.create(plan, tmp_path / "run")
    files.config.write_text(plan.config.replace(image_shape=(8, 8, 1), num_classes=3).to_json())
    again = plans.resumed(plans.Request(given={"dataset": "mine"}, records=wish.records), tmp_path / "run")
    np.testing.assert_array_equal(plans.testing_records(again).images, held.images)
    with pytest.raises(CheckpointError, match="holdout=0.1, not 0.2"):
        plans.resumed(plans.Request(given={"dataset": "mine", "holdout": 0.2}, records=wish.records), tmp_path / "run")


@pytest.mark.parametrize("changes, message", [
    ({"method": "dp_gan", "adjacency": "add-or-remove-one"},
     "holdout=0.1 to be 0 under add-or-remove-one, .* --test_dataset"),
    ({"method": "datalens", "num_owners": 2, "noise": "gaussian"}, "holdout=0.1 to be 0 where owners keep"),
    ({"dataset": "npz:{0..1}.npz"}, "holdout=0.1 to be 0 for data in several files"),
    ({"holdout": 0.7}, r"holdout=0.7 in \[0, 0.5\]"),
])
def test_nothing_is_held_out_where_places_are_no_public_facts(changes, message, tmp_path):
    given = {"dataset": "mine", "holdout": 0.1, **changes}
    wish = plans.Request(method=given.pop("method", "dp_merf"), given=given, records=request(tmp_path).records)
    with pytest.raises(InvalidArgumentError, match=message):
        plans.planned(wish)


def test_records_to_test_on_lie_beside_the_data_or_are_named(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "both.npz", x=images[:60], y=np.arange(60) % 3, x_test=images[60:], y_test=np.arange(20) % 3)
    np.savez(tmp_path / "one.npz", x=images[:60], y=np.arange(60) % 3)

    def planned(name, test=None):
        return plans.planned(plans.Request(method="dp_merf", given={"dataset": str(tmp_path / name), "epsilon": 1.0},
                                         test_dataset=None if test is None else str(tmp_path / test)))

    np.testing.assert_array_equal(plans.testing_records(planned("both.npz")).images, images[60:])
    assert plans.testing_records(planned("one.npz")) is None
    assert len(plans.testing_records(planned("one.npz", "both.npz"))) == 20
    named = plans.testing_records(planned("both.npz", "one.npz"))  # All of it: it has no test split.
    assert (len(named), named.name) == (60, "npz:one.npz")
    with pytest.raises(InvalidArgumentError, match="to be other records than those to train on"):
        plans.testing_records(planned("one.npz", "one.npz"))
    assert planned("one.npz", "both.npz").sources["test_dataset"] == f"npz:{tmp_path / 'both.npz'}"


def test_known_data_have_the_delta_of_their_preset_and_others_one_of_their_number():
    assert plans.usual_delta("mnist", 60_000) == 1e-5 > plans.usual_delta("npz:mine.npz", 60_000)
    assert plans.usual_delta("npz:mine.npz", 60_000) == delta.automatic(60_000) == plans.usual_delta(None, 60_000)
