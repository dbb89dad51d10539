"""Data sets: what is accepted, and what is refused in one line."""

import dataclasses
import warnings

import numpy as np
import pytest

from datalens_tf.data.datasets import (
    as_dataset,
    chunks,
    hold_out,
    sound,
    to_unit,
    unit_sizes,
    usable_only,
    with_data,
)
from datalens_tf.data.partition import user_indices
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataError, DataWarning, InvalidArgumentError
from datalens_tf.methods.datalens import DataLensConfig
from tests.data.records import images_of, refused, write_folder


class TestArrays:

    def test_uint8_is_kept_in_order_without_a_copy(self):
        images, labels = images_of(5), np.array([0, 2, 1, 1, 0], np.int32)
        dataset = as_dataset(images, labels)
        assert np.shares_memory(dataset.images, images)
        assert dataset.labels.dtype == np.int64 and dataset.labels.tolist() == [0, 2, 1, 1, 0]
        assert (dataset.num_classes, dataset.class_names, dataset.image_shape) == (3, ("0", "1", "2"), (8, 8, 1))

    def test_floats_stay_as_they_are_and_grey_images_get_their_channel(self):
        images = np.linspace(0, 1, 2 * 8 * 12).reshape(2, 8, 12)
        dataset = as_dataset(images, [0, 1], num_classes=7)
        assert dataset.images.shape == (2, 8, 12, 1) and dataset.images.dtype == np.float32
        np.testing.assert_array_equal(dataset.images[..., 0], images.astype(np.float32))
        assert dataset.num_classes == 7


class TestScaling:

    def test_fixed_for_every_byte(self):
        every = np.arange(256, dtype=np.uint8)
        assert to_unit(every).dtype == np.float32
        np.testing.assert_allclose(to_unit(every), np.arange(256) / 255, rtol=1e-7)

    def test_of_an_image_depends_on_no_other(self):
        dim = images_of(4) // 8
        with_bright_record = np.concatenate([dim, np.full_like(dim[:1], 255)])
        np.testing.assert_array_equal(to_unit(dim), to_unit(with_bright_record)[:4])

    def test_floats_are_kept(self):
        np.testing.assert_array_equal(to_unit(np.array([0, 0.3], np.float32)), np.array([0, 0.3], np.float32))


def test_usable_only_and_chunks_keep_records_and_labels_together():
    usable = np.array([True, False, True, True, False])
    images = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 1), np.uint8)
    data = as_dataset(images, np.arange(5), 5, usable=usable, users=np.arange(5), units=np.array([7, 7, 9, 7, 8]))
    kept = usable_only(data)
    assert kept.usable is None and list(kept.labels) == list(kept.users) == [0, 2, 3]
    assert usable_only(kept) is kept
    found = list(chunks(kept, 2))
    assert [len(labels) for _, labels, _ in found] == [2, 1]
    for images, labels, _ in found:
        assert images.dtype == np.float32
        np.testing.assert_array_equal(images[:, 0, 0, 0] * 255, labels)
    # Of the three units, that of number 8 has no usable record, and counts.
    assert data.num_units == kept.num_units == kept.num_slots == 3 and list(kept.owners) == [0, 2, 0]
    assert list(unit_sizes(data)) == [2, 2, 1, 2, 1]
    assert [list(sizes) for *_, sizes in found] == [[2, 1], [2]]


def test_units_are_numbered_by_their_names_and_a_record_is_one_by_default():
    images = np.zeros((4, 8, 8, 1), np.uint8)
    data = as_dataset(images, np.arange(4), 4, units=np.array(["p2", "p10", "p2", "p1"]), unit="patient")
    assert (data.unit, data.num_units, list(data.units.of)) == ("patient", 3, [2, 1, 2, 0])
    alone = as_dataset(images, np.arange(4), 4)
    assert (alone.unit, alone.num_units, alone.owners, list(unit_sizes(alone))) == (None, 4, None, [1] * 4)
    with pytest.raises(DataError, match=r"expected users of shape \[4\]"):
        as_dataset(images, np.arange(4), 4, units=np.zeros(3, int))


class TestDeclaredClasses:
    """The number and the names of classes do not depend on the records' labels."""

    CLASSES = ("cat", "dog", "emu")

    def public(self, dataset):
        return (dataset.num_classes, dataset.class_names, dataset.image_shape, len(dataset), dataset.name,
                dataset.labels.dtype, dataset.images.dtype)

    @pytest.mark.parametrize("label", [0, 2, 3, 70_000, -1, 2**62, -2**62])
    @pytest.mark.parametrize("kind", [np.uint8, np.float32])
    def test_a_neighbour_with_any_label_has_the_same_classes(self, tmp_path, label, kind):
        images, labels = images_of(6) if kind is np.uint8 else to_unit(images_of(6)), np.array([0, 1, 0, 1, 2, 1])
        np.savez(tmp_path / "data.npz", x=images, y=labels)
        before = load_dataset(f"npz:{tmp_path}/data.npz", classes=self.CLASSES)
        labels[3] = label
        np.savez(tmp_path / "data.npz", x=images, y=labels)
        after = load_dataset(f"npz:{tmp_path}/data.npz", classes=self.CLASSES)
        assert self.public(before) == self.public(after) and before.declared and after.declared
        others = np.arange(6) != 3
        np.testing.assert_array_equal(before.images[others], after.images[others])
        np.testing.assert_array_equal(before.labels[others], after.labels[others])
        if 0 <= label < 3:
            assert after.usable is None and after.labels[3] == label
        else:  # It keeps its place, and nothing of it is left.
            assert after.usable.tolist() == others.tolist() and after.labels[3] == 0 and not after.images[3].any()

    def test_without_a_declaration_one_record_changes_their_number(self):
        """Why the statement says so."""
        assert as_dataset(images_of(3), [0, 1, 0]).num_classes == 2
        assert as_dataset(images_of(3), [0, 1, 6]).num_classes == 7
        assert not as_dataset(images_of(3), [0, 1, 6]).declared

    def test_unsigned_labels_do_not_wrap_around(self):
        labels = np.array([0, 1, 2**64 - 1, 2**63], np.uint64)
        dataset = as_dataset(images_of(4), labels, classes=self.CLASSES)
        assert dataset.usable.tolist() == [True, True, False, False] and dataset.labels.tolist() == [0, 1, 0, 0]

    def test_the_callers_arrays_are_left_alone(self):
        images, labels = images_of(3), np.array([0, 9, 1])
        kept = images.copy()
        dataset = as_dataset(images, labels, classes=self.CLASSES)
        assert np.array_equal(images, kept) and labels.tolist() == [0, 9, 1] and not dataset.images[1].any()

    @pytest.mark.parametrize("labels", [[1, 1, 1], [9, 9, 9]])
    def test_what_labels_there_are_is_no_reason_to_refuse(self, labels):
        assert as_dataset(images_of(3), labels, classes=self.CLASSES).num_classes == 3

    def test_a_number_without_a_declaration_is_checked(self):
        """Of generated images, for example, whose labels are no secret."""
        assert "labels in [0, 3), got 3" in refused(as_dataset, images_of(2), [0, 3], 3)

    def test_users_keep_their_records(self):
        dataset = as_dataset(images_of(4), [0, 9, 1, 2], classes=self.CLASSES, users=np.array([5, 5, 6, 6]))
        assert [indices.tolist() for indices in user_indices(dataset, 2, 0)] == [[0, 0], [2, 3]]

    def test_records_of_the_test_split_are_left_out(self, tmp_path):
        np.savez(tmp_path / "data.npz", x=images_of(2), y=[0, 1], x_test=images_of(3), y_test=[0, 7, 1])
        test = load_dataset(f"npz:{tmp_path}/data.npz", split="test", classes=self.CLASSES)
        assert test.labels.tolist() == [0, 1] and test.usable is None and test.num_classes == 3
        np.savez(tmp_path / "data.npz", x=images_of(2), y=[0, 1], x_test=images_of(3), y_test=[7, 7, 7])
        assert "no record of the test split" in refused(
            load_dataset, f"npz:{tmp_path}/data.npz", split="test", classes=self.CLASSES)

    def test_a_picture_that_moves_to_an_undeclared_folder_keeps_its_place(self, tmp_path):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2, "dog/3.png": 3, "emu/4.png": 4})
        before = load_dataset(f"folder:{tmp_path}", classes=("dog", "cat", "yak"))
        (tmp_path / "new").mkdir()
        (tmp_path / "dog" / "3.png").rename(tmp_path / "new" / "3.png")
        after = load_dataset(f"folder:{tmp_path}", classes=("dog", "cat", "yak"))
        assert self.public(before) == self.public(after) and before.class_names == ("dog", "cat", "yak")
        moved = before.images[:, 0, 0, 0] == 3
        assert moved.sum() == 1 and (~after.usable)[moved].all() and not after.images[moved].any()
        np.testing.assert_array_equal(before.images[~moved], after.images[~moved])
        np.testing.assert_array_equal(before.labels[~moved], after.labels[~moved])
        assert sorted(before.labels[before.usable].tolist()) == [0, 0, 1]
        assert "yak" in refused(load_dataset, f"folder:{tmp_path}", classes=("yak", "gnu"))

    def test_folders_of_the_test_split_may_be_undeclared(self, tmp_path):
        write_folder(tmp_path, {"train/cat/1.png": 1, "train/dog/2.png": 2, "test/cat/3.png": 3, "test/new/4.png": 4})
        test = load_dataset(f"folder:{tmp_path}", split="test", classes=("cat", "dog"))
        assert test.labels.tolist() == [0] and test.class_names == ("cat", "dog")

    def test_some_classes_of_a_public_list(self):
        everything, some = load_dataset("digits"), load_dataset("digits", classes=("8", "3"))
        wanted = np.isin(everything.labels, [3, 8])
        assert some.usable.tolist() == wanted.tolist() and some.num_classes == 2 and some.declared
        np.testing.assert_array_equal(some.labels[wanted], np.where(everything.labels[wanted] == 8, 0, 1))
        np.testing.assert_array_equal(some.images[wanted], everything.images[wanted])
        assert not some.images[~wanted].any() and len(some) == len(everything)
        assert "cat" in refused(load_dataset, "digits", classes=("cat", "dog"))

    def test_settings_and_data_agree(self):
        declared = as_dataset(images_of(3), [0, 1, 9], classes=self.CLASSES)
        assert with_data(DataLensConfig(top_k=5), declared).classes == self.CLASSES
        assert with_data(DataLensConfig(top_k=5, classes=self.CLASSES), declared).num_classes == 3
        with pytest.raises(InvalidArgumentError, match="classes=.'a', 'b'. to be those"):
            with_data(DataLensConfig(top_k=5, classes=("a", "b")), declared)
        with pytest.raises(InvalidArgumentError, match="classes="):
            with_data(DataLensConfig(top_k=5, classes=self.CLASSES), as_dataset(images_of(2), [0, 1]))


def test_records_that_cannot_be_any_keep_their_places_and_are_not_usable():
    images = np.full((6, 4, 4, 1), 0.5, np.float32)
    images[1, 0, 0], images[2, 1, 1], images[3, 3, 3] = np.nan, np.inf, 1.0001
    made = as_dataset(np.zeros((6, 4, 4, 1), np.uint8), [0, 1, 0, 1, 0, 1], 2)
    data = dataclasses.replace(made, images=images, labels=np.array([0, 1, 0, 1, 2, -1]))
    found = sound(data)
    np.testing.assert_array_equal(found.usable, [True, False, False, False, False, False])
    assert len(found) == 6 and np.all(found.images[1:] == 0) and np.all(found.labels[1:] == 0)
    assert np.isnan(images[1, 0, 0, 0])  # The caller's are left alone.
    alone = dataclasses.replace(data, usable=np.array([False, *[True] * 5]))
    assert not sound(alone).usable.any()
    assert sound(made) is made
    for changes, message in (({"labels": np.zeros(5, int)}, "labels of shape"), ({"usable": np.ones(1)}, "usable"),
                             ({"images": images[..., 0, 0]}, "images of shape"),
                             ({"images": images.astype(complex)}, "dtype")):
        with pytest.raises(DataError, match=message):
            sound(dataclasses.replace(data, **changes))


class TestHoldOut:

    @pytest.mark.parametrize("share, held", [(0.1, [9, 19]), (0.5, range(1, 20, 2)), (0.3, [3, 6, 9, 13, 16, 19])])
    def test_places_decide_alone(self, share, held):
        images, usable = images_of(20), np.arange(20) != 9
        train, test = hold_out(as_dataset(images, np.arange(20) % 3, usable=usable), share)
        kept = np.setdiff1d(np.arange(20), held)
        np.testing.assert_array_equal(test.images, images[held])
        np.testing.assert_array_equal(train.images, images[kept])
        np.testing.assert_array_equal(train.usable, usable[kept])
        np.testing.assert_array_equal(test.labels, np.arange(20)[held] % 3)
        assert train.held_out == share and test.num_classes == train.num_classes == 3
        again, none = hold_out(sound(train), share)  # As a run does with what a plan has divided.
        assert len(again) == len(train) and none is None

    def test_a_replaced_record_moves_no_other(self):
        images = images_of(20)
        train, _ = hold_out(as_dataset(images, np.arange(20) % 3), 0.1)
        images = images.copy()
        images[4] = 255 - images[4]
        other, _ = hold_out(as_dataset(images, np.roll(np.arange(20) % 3, 1)), 0.1)
        assert np.flatnonzero((train.images != other.images).any((1, 2, 3))).tolist() == [4]

    def test_units_and_users_and_slots_stay_whole(self):
        images, owners = images_of(12), np.array([0, 1, 2, 3, 4, 5] * 2) * 10
        train, test = hold_out(as_dataset(images, np.arange(12) % 2, units=owners), 0.34)
        assert list(test.units.of) == [0, 1, 0, 1] and test.num_units == 2  # Units 20 and 50.
        assert list(train.units.of) == [0, 1, 2, 3] * 2 and train.num_units == train.num_slots == 4
        train, test = hold_out(as_dataset(images, np.arange(12) % 2, users=owners), 0.34)
        assert set(test.users) == {20, 50} and set(train.users) == {0, 10, 30, 40}
        slots = dataclasses.replace(as_dataset(images, np.arange(12) % 2), slots=np.repeat(np.arange(6), 2))
        train, test = hold_out(slots, 0.34)
        np.testing.assert_array_equal(test.images, images[[4, 5, 10, 11]])
        assert train.num_slots == 4 and list(test.slots) == [0, 0, 1, 1]

    def test_nothing_or_too_little(self):
        data = as_dataset(images_of(9), np.arange(9) % 2)
        assert hold_out(data, 0) == (data, None)
        assert "got holdout=0.1 of 9" in refused(hold_out, data, 0.1)
        with pytest.raises(InvalidArgumentError, match="held out before"):
            hold_out(hold_out(data, 0.5)[0], 0.25)


def test_labels_that_begin_above_0_are_pointed_out():
    images = np.zeros((4, 8, 8, 1), np.uint8)
    with pytest.warns(DataWarning, match="labels begin at 1, so that smaller ones are classes without records"):
        assert as_dataset(images, np.array([1, 2, 2, 1])).num_classes == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_dataset(images, np.array([0, 2, 2, 1]))
        as_dataset(images, np.array([1, 2, 2, 1]), 3)
        as_dataset(images, np.array([1, 2, 2, 1]), classes=["a", "b"])
