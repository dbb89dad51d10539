"""Names that stand for several files."""

import pytest

from datalens_tf.data.shards import has_shards, shard_names
from datalens_tf.errors import InvalidArgumentError


def test_a_range_stands_for_its_numbers_with_the_digits_of_the_first():
    assert shard_names("npz:/data/{9..11}.npz") == ("npz:/data/9.npz", "npz:/data/10.npz", "npz:/data/11.npz")
    assert shard_names("parquet:part-{00..02}")[-1] == "parquet:part-02"
    assert has_shards("npz:{0..3}.npz") and not has_shards("npz:{owner}.npz") and not has_shards("mnist")


@pytest.mark.parametrize("name", ["npz:{3..2}.npz", "npz:{0..1}{0..1}.npz", "npz:{0..100000}.npz", "npz:a.npz"])
def test_what_is_no_range_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="dataset="):
        shard_names(name)
