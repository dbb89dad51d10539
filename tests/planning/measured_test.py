"""The table of measured runs: read as it is written, and asked for what is alike."""

import math

import pytest

from datalens_tf.facts import DataFacts
from datalens_tf.methods.registry import methods
from datalens_tf.planning import measured

TEXT = """dataset,num_records,num_classes,height,width,channels,epsilon,method,accuracy,real_accuracy,minutes
MNIST,3000,10,28,28,1,3,datalens_plus,0.9,0.95,6
MNIST,3000,10,28,28,1,3,dp_merf,0.7,0.95,1
MNIST,60000,10,28,28,1,3,datalens_plus,0.97,0.99,15
KMNIST,40000,10,28,28,1,3,datalens_plus,0.8,0.95,12
CIFAR-10,3000,10,32,32,3,3,datalens_plus,0.3,0.4,9
"""


@pytest.fixture(name="table")
def fixture_table(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text(TEXT)
    return path


def facts(num_records, channels=1):
    return DataFacts(num_records=num_records, image_shape=(28, 28, channels), num_classes=10)


def test_alike_are_runs_of_the_method_with_as_much_signal_and_as_many_channels(table):
    found = measured.alike(facts(2000), 3.0, "datalens_plus", table)
    assert [(row.dataset, row.accuracy, row.minutes) for row in found] == [("MNIST", 0.9, 6.0)]
    assert measured.alike(facts(6000), 1.0, "datalens_plus", table) == found  # As much signal by another epsilon.
    assert [row.dataset for row in measured.alike(facts(3000, 3), 3.0, "datalens_plus", table)] == ["CIFAR-10"]


def test_nothing_is_said_where_nothing_is_alike(table):
    assert measured.alike(facts(300), 3.0, "datalens_plus", table)  # Ten times as much, and no more.
    assert not measured.alike(facts(299), 3.0, "datalens_plus", table)
    assert not measured.alike(facts(3000), 3.0, "dcgan", table)


def test_the_nearest_comes_first(table):
    found = measured.alike(facts(30_000), 3.0, "datalens_plus", table)
    signals = [abs(math.log(row.facts.num_records * row.epsilon / (30_000 * 3.0))) for row in found]
    assert len(found) == 2 and signals == sorted(signals)


def test_the_packages_own_table_is_sound():
    for row in measured.rows():
        assert row.method in methods() and 0 <= row.accuracy <= 1 and 0 < row.real_accuracy <= 1 and row.minutes > 0
