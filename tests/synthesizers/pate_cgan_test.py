"""PATE-CGAN: PATE-GAN with dense teachers and confident answers."""

import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods import PateCganConfig
from datalens_tf.models.discriminator import EnsembleDenseDiscriminator
from datalens_tf.training.teachers import build_teachers
from tests.synthesizers.voted import TEACHERS, VotedConformance

CONFIG = PateCganConfig(**TEACHERS, student_steps=2, student_batch_size=4, replay_releases=2)


class TestPateCgan(VotedConformance):
    CONFIG = CONFIG

    def test_networks_are_dense(self):
        assert isinstance(build_teachers(self.resolved[0], 2), EnsembleDenseDiscriminator)
        assert isinstance(self.resolved[2](self.resolved[0])._discriminator, EnsembleDenseDiscriminator)

    def test_the_statement_names_both_noises(self, run):
        statement = run.privacy_statement()
        assert statement["noise_multiplier_per_step"]**-2 == pytest.approx(
            3 * (statement["threshold_noise_stddev"]**-2 + 2 * statement["noise_stddev"]**-2), rel=1e-9)


@pytest.mark.parametrize("changes, message", [
    ({"vote_threshold": 1.5}, "vote_threshold=1.5"), ({"student_steps": 0}, "student_steps=0 >= 1"),
    ({"threshold_noise_ratio": 0.0}, "threshold_noise_ratio=0.0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
