"""DataLens with D2P-Fed's compressor: what every method with voting teachers must do, and its settings."""

import math

import pytest

from datalens_tf.accounting.wording import render_text
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.d2pfed import D2PFedConfig
from tests.methods.voted import TEACHERS, VotedConformance

CONFIG = D2PFedConfig(**TEACHERS, num_levels=4)


@pytest.mark.slow  # Its family's first class is quick.
class TestD2PFed(VotedConformance):
    CONFIG = CONFIG
    FIRST_OF_ITS_FAMILY = False

    def test_the_statement_has_the_price_of_levels_on_all_rotated_coordinates(self, run):
        statement = run.privacy_statement()
        assert statement["l2_sensitivity"] == 2 * 3 * math.sqrt(64 * 3) and statement["padded_dimension"] == 64
        text = " ".join(render_text(statement).split())
        assert "one of 4 levels" in text and "2 * (4 - 1) * sqrt(64 * 3) = 83.1384" in text


@pytest.mark.parametrize("changes, message", [
    ({"num_levels": 1}, "num_levels=1 >= 2"), ({"clip": 0.0}, "clip=0.0 > 0"),
    ({"vote_threshold": 1.5}, "vote_threshold=1.5"), ({"step_size": 0.0}, "step_size=0.0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
