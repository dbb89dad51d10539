"""Expectations: between what was measured, wide enough, and none where nothing was."""

import csv
import dataclasses
import math

import pytest

from datalens_tf.facts import DataFacts
from datalens_tf.planning import advice, measured

HEAD = "dataset,num_records,num_classes,height,width,channels,epsilon,method,accuracy,real_accuracy,minutes\n"


@pytest.fixture(name="table")
def fixture_table(tmp_path):
    """Worth 0.5 at 1,000 records, 0.7 at 4,000; of other data 0.9."""
    rows = [("A", 1000, 0.5), ("A", 4000, 0.7), ("B", 2000, 0.9)]
    path = tmp_path / "measured.csv"
    path.write_text(HEAD + "".join(f"{name},{count},2,28,28,1,1,m,{0.5 + worth / 4:.4f},0.75,{count / 1000}\n"
                                   for name, count, worth in rows))
    return path


def facts(num_records, num_classes=2):
    return DataFacts(num_records=num_records, image_shape=(28, 28, 1), num_classes=num_classes)


def test_worth_is_above_guessing(table):
    assert [row.worth for row in measured.rows(table)] == pytest.approx([0.5, 0.7, 0.9])


def test_a_range_covers_other_data_and_is_read_off_between_runs(table):
    found = advice.expected(facts(2000), 1.0, "m", table)
    margin = 0.25 / math.sqrt(2)  # Two data sets.
    assert (found.low, found.high) == (pytest.approx(0.6 - margin), pytest.approx(1.0)) and found.nearest.dataset == "B"
    assert not found.is_noise
    more = advice.expected(facts(500), 2.0, "m", table)  # As much signal as 1,000 records at epsilon 1.
    assert more.low == pytest.approx(0.5 - margin) and more.nearest.minutes == 1.0


def test_beyond_the_runs_worth_may_change_as_fast_as_it_ever_does(table):
    table.write_text("".join(line for line in table.read_text().splitlines(True) if not line.startswith("B,")))
    below, above = (advice.expected(facts(count), 1.0, "m", table) for count in (800, 8000))
    assert below.low == pytest.approx(0.5 - math.log10(1.25) - 0.25)
    assert below.high == pytest.approx(0.5 + 0.25)  # Fewer records are not worth more.
    assert (above.low, above.high) == (pytest.approx(0.7 - 0.25), 1.0)


def test_runs_with_as_much_signal_are_a_range(table):
    with table.open("a") as file:
        file.write("B,1000,2,28,28,1,2,m,0.6,0.75,1\n")  # Worth 0.4, where 2,000 at epsilon 1 have 0.9.
    assert advice._read_off([(1.0, 0.4), (1.0, 0.9), (2.0, 1.0)], 1.0)[0] == pytest.approx(0.4)
    assert advice._read_off([(1.0, 0.4), (1.0, 0.9), (2.0, 1.0)], 1.5) == (pytest.approx(0.7), pytest.approx(0.95))
    assert advice.expected(facts(2000), 1.0, "m", table).low == pytest.approx(0.4 - 0.25 / math.sqrt(2))


def test_time_and_memory_follow_an_images_size(table):
    found = advice.expected(facts(1000), 1.0, "m", table)
    large = dataclasses.replace(facts(1000), image_shape=(56, 56, 1))
    assert [advice.minutes(one, found) for one in (facts(1000), large)] == pytest.approx([1.0, 4.0])
    assert 0.7 < advice.memory(facts(1000)) < advice.memory(facts(100_000)) < advice.memory(facts(10**6)) < 5
    colour = dataclasses.replace(facts(50_000), image_shape=(32, 32, 3))
    assert 2.41 <= advice.memory(colour) < 2.7  # As it was measured.


def test_nothing_is_expected_of_what_nothing_is_like(table):
    assert advice.expected(facts(10), 1.0, "m", table) is None
    assert advice.expected(facts(2000), 1.0, "other", table) is None


def test_what_helps_is_ordered_by_what_it_brings(table):
    found = advice.what_helps(facts(1000, 4), 1.0, "m", table)
    lows = [there.low for _, there in found]
    assert {text for text, _ in found} == {"2,000 records", "2 classes", "epsilon 3"}
    assert lows == sorted(lows, reverse=True) and lows[-1] >= advice.expected(facts(1000, 4), 1.0, "m", table).low
    assert all("epsilon" not in text for text, _ in advice.what_helps(facts(1000), 10.0, "m", table))


def test_what_helps_never_promises_less_than_there_is(table):
    """Twice the records lie between fewer data sets' runs here, of lower worth."""
    table.write_text(HEAD + "A,1000,2,28,28,1,1,m,0.74,0.75,1\nB,4000,2,28,28,1,1,m,0.6,0.75,1\n")
    now = advice.expected(facts(1200), 1.0, "m", table)
    for _, there in advice.what_helps(facts(1200), 1.0, "m", table):
        assert there.low >= now.low and there.high >= now.high


def test_what_helps_leaves_out_what_does_not(table):
    """Where more was measured to bring nothing, nothing is said."""
    table.write_text(HEAD + "".join(f"A,{count},2,28,28,1,1,m,0.75,0.75,1\n" for count in (1000, 2000, 4000)))
    assert advice.expected(facts(1000), 1.0, "m", table).high == 1
    assert all("records" not in text for text, _ in advice.what_helps(facts(1000), 1.0, "m", table))


def test_nothing_is_sure_of_far_larger_images(table):
    large = dataclasses.replace(facts(2000), image_shape=(57, 56, 1))
    assert advice.expected(large, 1.0, "m", table).low == 0
    assert advice.largest_measured(large, "m", table) == (28, 28)
    assert advice.largest_measured(dataclasses.replace(large, image_shape=(56, 56, 1)), "m", table) is None


def test_the_packages_table_predicts_what_it_does_not_contain(tmp_path):
    """Of each data set by the others: the worth is in the range that is stated, for 19 runs of 20 at least."""
    with measured.TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names, hits = sorted({row["dataset"] for row in rows}), []
    for name in names:
        path = tmp_path / "others.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, HEAD.strip().split(","))
            writer.writeheader()
            writer.writerows(row for row in rows if row["dataset"] != name)
        hits += [found.low <= row.worth <= found.high for row in measured.rows() if row.dataset == name
                 and (found := advice.expected(row.facts, row.epsilon, row.method, path))]
    assert len(hits) >= 20 and sum(hits) >= 0.95 * len(hits)
