import pytest

from datalens_tf.facts import DataFacts


@pytest.mark.parametrize("more,words", [
    ({}, "3,002 grey pictures of 28 x 20 in 11 classes"),
    ({"num_records": 1, "num_classes": 1}, "1 grey picture of 28 x 20 in 1 class"),
    ({"image_shape": (28, 20, 3)}, "3,002 colour pictures of 28 x 20 in 11 classes"),
    ({"image_shape": (28, 20, 2)}, "3,002 pictures of 28 x 20 in 11 classes"),
    ({"unit": "identity"}, "3,002 units by identity with grey pictures of 28 x 20 in 11 classes")])
def test_facts_in_words(more, words):
    assert str(DataFacts(**{"num_records": 3002, "image_shape": (28, 20, 1), "num_classes": 11, **more})) == words


def test_every_teacher_has_enough_records_and_shared_slots_count_once():
    shape = {"image_shape": (28, 28, 1), "num_classes": 10}
    assert DataFacts(num_records=60_000, **shape).num_teachers == 4000
    assert DataFacts(num_records=60_000, num_slots=150, **shape).num_teachers == 10
    assert DataFacts(num_records=3, **shape).num_teachers == 1
