"""The registry of data: names, and a source that is one file."""

import pathlib
import textwrap

import pytest

from datalens_tf.data import registry, sources
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import InvalidArgumentError
from tests.data.records import refused


def test_unknown_names_list_the_known_ones():
    for name in ("minst", "npz:", "csv:file", ""):
        text = refused(load_dataset, name)
        assert repr(name) in text
        for known in ("digits", "mnist", "fashion_mnist", "cifar10", "tfds:NAME", "npz:FILE", "folder:DIR"):
            assert known in text


def test_unknown_splits_are_refused():
    with pytest.raises(InvalidArgumentError, match="split='validation' to be one of train, test"):
        load_dataset("digits", split="validation")


def test_names_say_what_they_are():
    known = registry.known_datasets()
    assert list(known)[:2] == ["celeba_gender", "celeba_hair"] and list(known)[-1] == "tfds:NAME"
    assert all(line and "\n" not in line for line in known.values())


def test_the_reference_lists_every_name():
    text = (pathlib.Path(__file__).parents[2] / "docs/reference/command_line.md").read_text(encoding="utf-8")
    assert [name for name in registry.known_datasets() if f"`{name}`" not in text] == []


def test_which_lists_of_classes_are_public():
    public = {name: registry.has_public_classes(name) for name in ("mnist", "tfds:any", "celeba_hair", "places365",
                                                                   "digits", "npz:file", "folder:dir", "unknown")}
    assert public == {"mnist": True, "tfds:any": True, "celeba_hair": True, "places365": True, "digits": True,
                      "npz:file": False, "folder:dir": False, "unknown": False}


def test_a_file_in_the_folder_of_sources_is_a_data_set(tmp_path, monkeypatch):
    (tmp_path / "shades.py").write_text(textwrap.dedent('''
        """Grey squares of one shade each."""

        import numpy as np

        from datalens_tf.data.datasets import as_dataset

        NAMES = {"shades:COUNT": "grey squares, as many as you say"}
        PUBLIC_CLASSES = True


        def load(name, *, split, data_dir, classes):
            count = int(name.partition(":")[2])
            images = np.arange(count, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
            return as_dataset(images, np.arange(count) % 2, 2, name=name, class_names=("even", "odd"))
    '''))
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    assert registry.known_datasets()["shades:COUNT"] == "grey squares, as many as you say"
    assert registry.has_public_classes("shades:7")
    dataset = load_dataset("shades:7")
    assert (len(dataset), dataset.class_names) == (7, ("even", "odd"))
    odd = load_dataset("shades:7", classes=("odd",))
    assert odd.usable.tolist() == [False, True] * 3 + [False] and odd.num_classes == 1
    assert "Unknown data set 'shades:'" in refused(load_dataset, "shades:")
