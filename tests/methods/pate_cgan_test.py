"""PATE-CGAN: PATE-GAN with dense teachers and confident answers."""

import pytest

from datalens_tf import cli
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.pate_cgan import PateCganConfig
from datalens_tf.models.discriminator import EnsembleDenseDiscriminator
from datalens_tf.training.teachers import build_teachers
from tests.methods.voted import TEACHERS, VotedConformance

CONFIG = PateCganConfig(**TEACHERS, student_steps=2, student_batch_size=4, replay_releases=2)


class TestPateCgan(VotedConformance):
    CONFIG = CONFIG
    FIRST_OF_ITS_FAMILY = False

    def test_networks_are_dense(self):
        assert isinstance(build_teachers(self.resolved[0], 2), EnsembleDenseDiscriminator)
        assert isinstance(self.resolved[2](self.resolved[0])._discriminator, EnsembleDenseDiscriminator)

    def test_the_statement_names_both_noises(self, run):
        statement = run.privacy_statement()
        assert statement["noise_multiplier_per_step"]**-2 == pytest.approx(
            3 * (statement["threshold_noise_stddev"]**-2 + 2 * statement["noise_stddev"]**-2), rel=1e-9)


@pytest.mark.slow
def test_a_run_with_calibrated_noise_is_resumed_with_the_settings_that_it_was_given(tmp_path, capsys):
    words = ["train", "--preset=digits", "--method=pate_cgan", "--epsilon=5", "--num_steps=1", "--student_steps=1",
             "--num_teachers=8", "--warmup_teacher_steps=1", "--generator_filters=4", "--generator_units=8",
             f"--output_dir={tmp_path}"]
    assert cli.main(words) == 0 and "epsilon 5.0000 (gdp), delta 1e-05, replace-one, 1 steps" in capsys.readouterr().out
    assert cli.main([*words, "--resume"]) == 0
    assert cli.main([*words, "--resume", "--noise_stddev=3"]) == 2 and "noise_stddev=" in capsys.readouterr().err


@pytest.mark.parametrize("changes, message", [
    ({"vote_threshold": 1.5}, "vote_threshold=1.5"), ({"student_steps": 0}, "student_steps=0 >= 1"),
    ({"threshold_noise_ratio": 0.0}, "threshold_noise_ratio=0.0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
