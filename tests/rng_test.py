"""Streams are functions of their seed and path, on every version of numpy."""

import numpy as np
import pytest

from datalens_tf import rng


def test_a_stream_is_the_same_with_every_version_of_numpy():
    """Runs of one are resumed with another, and pictures of a seed are drawn again."""
    assert rng.stream(0, "weights", 3).integers(2**32) == 119633871
    np.testing.assert_array_equal(rng.tensorflow_seed(7, "latents"), [240859041, 564634547])


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpys_integers_name_the_same_streams_as_pythons(kind):
    assert rng.stream(0, "user", kind(3)).random() == rng.stream(kind(0), "user", 3).random() == rng.stream(
        0, "user", 3).random()


def test_every_part_of_the_path_counts():
    paths = [(), ("a",), ("a", 1), ("a", 2), ("a", "1"), ("b", 1), (1, "a")]
    drawn = [rng.stream(seed, *path).random() for seed in (0, 1) for path in paths]
    assert len(set(drawn)) == 2 * len(paths)
