"""DataLens with FetchSGD's compressor: what every method with voting teachers must do, and its settings."""

import math

import pytest

from datalens_tf.accounting.wording import render_text
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.fetchsgd import FetchSgdConfig
from tests.methods.voted import TEACHERS, VotedConformance

CONFIG = FetchSgdConfig(**TEACHERS, top_k=5, sketch_rows=3, sketch_columns=32)


@pytest.mark.slow  # Its family's first class is quick.
class TestFetchSgd(VotedConformance):
    CONFIG = CONFIG
    FIRST_OF_ITS_FAMILY = False

    def test_the_statement_counts_rows_and_collisions(self, run):
        statement = run.privacy_statement()
        assert statement["l2_sensitivity"] == 2 * math.sqrt(3 * 5 * 2 * 3) and statement["largest_bucket"] == 2
        text = " ".join(render_text(statement).split())
        assert "3 rows of 32 buckets" in text and "at most 18.9737 in l2 norm" in text


@pytest.mark.parametrize("changes, message", [
    ({"top_k": 0}, "top_k=0 >= 1"), ({"image_shape": (4, 4, 1), "top_k": 17}, "top_k=17 <= 16"),
    ({"sketch_rows": 0}, "sketch_rows=0 >= 1"), ({"sketch_columns": 0}, "sketch_columns=0 >= 1"),
    ({"clip": -1.0}, "clip=-1.0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
