"""G-PATE: what every method with voting teachers must do, and its settings."""

import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods import GPateConfig
from tests.synthesizers.voted import TEACHERS, VotedConformance

CONFIG = GPateConfig(**TEACHERS, projection_dim=4, num_bins=3)


class TestGPate(VotedConformance):
    CONFIG = CONFIG

    def test_the_statement_names_both_noises(self, run):
        statement = run.privacy_statement()
        assert statement["threshold_noise_stddev"] == pytest.approx(3 * statement["noise_stddev"], rel=1e-12)
        assert statement["noise_multiplier_per_step"]**-2 == pytest.approx(
            3 * 4 * (statement["threshold_noise_stddev"]**-2 + 2 * statement["noise_stddev"]**-2), rel=1e-9)


@pytest.mark.parametrize("changes, message", [
    ({"projection_dim": 0}, "projection_dim=0 >= 1"), ({"num_bins": 1}, "num_bins=1 >= 2"),
    ({"clip": 0.0}, "clip=0.0 > 0"), ({"vote_threshold": 1.5}, "vote_threshold=1.5"),
    ({"step_size": 0.0}, "step_size=0.0 > 0"), ({"threshold_noise_ratio": 0.0}, "threshold_noise_ratio=0.0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
