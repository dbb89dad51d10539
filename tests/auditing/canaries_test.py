"""The audit of training: quiet where all is well, loud where teachers share something or the noise is off."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.auditing import canaries as canaries_module
from datalens_tf.auditing.canaries import Canaries, audit_training
from datalens_tf.auditing.releases import best_one_run_bound
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.mechanisms.noise import InsecureSeededNoise, RoundedGaussianNoise
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.options import PerformanceOptions
from datalens_tf.training import teachers
from datalens_tf.training import trainer as trainer_module
from tests.auditing.no_noise import NoNoise
from tests.training import tiny

N = 240
CONFIG = tiny.CONFIG.replace(num_teachers=N, noise_stddev=60.0, num_steps=4, epsilon=1e3, insecure_noise_seed=None)
DATASET = tiny.dataset(2 * N)
OPTIONS = PerformanceOptions(chunk_size=40)


def audit(folder, num_teachers=N, **changes):
    return audit_training(CONFIG.replace(num_teachers=num_teachers), DATASET, folder / "run",
                          num_canaries=num_teachers, options=OPTIONS, **{"noise": RoundedGaussianNoise(), **changes})


@pytest.mark.slow
def test_a_run_that_is_in_order_shows_less_than_it_claims_and_disturbs_nobody(tmp_path):
    found = audit(tmp_path, num_teachers=80, confidence=1 - 1e-6)
    assert found["num_teachers_disturbed"] == 0
    assert 0 < found["largest_change"] <= found["sensitivity"]
    assert max(found["releases"]["epsilon"], found["generator"]["epsilon"]) < found["epsilon"]


def test_noise_that_is_off_is_caught(tmp_path):
    found = audit(tmp_path, noise=NoNoise())
    assert found["releases"]["epsilon"] > 3
    assert found["releases"]["num_correct"] >= 0.99 * found["releases"]["num_guesses"] > 0.5 * N


@pytest.mark.slow
def test_the_attack_sees_what_little_noise_leaves(tmp_path):
    """It would be blind, and prove nothing, if it did not."""
    class Little(InsecureSeededNoise):
        def draw(self, shape, stddev, index):
            return super().draw(shape, stddev / 20, index)

    assert audit(tmp_path, noise=Little(0))["releases"]["epsilon"] > 0.5


@pytest.mark.slow
def test_a_shared_optimizer_slot_is_caught(tmp_path, monkeypatch):
    """Adam's second moments, averaged over the teachers of a chunk."""
    def sharing(config, state, gradients, step):
        new = teachers_adam(config, state, gradients, step)
        count = len(gradients)
        shared = [tf.broadcast_to(tf.reduce_mean(v, 0, keepdims=True), tf.shape(v)) for v in new[2 * count:]]
        return [*new[:2 * count], *shared]

    teachers_adam = teachers.adam
    monkeypatch.setattr(teachers, "_IDLE", collections.defaultdict(list))  # Others have been compiled already.
    monkeypatch.setattr(teachers, "adam", sharing)
    assert audit(tmp_path)["num_teachers_disturbed"] > N / 2


@pytest.mark.slow
def test_records_in_every_teacher_are_caught(tmp_path, monkeypatch):
    def everywhere(dataset, num_teachers, seed):
        shards = partition(dataset, num_teachers, seed)
        shards[:, 1] = shards[0, 0]  # The first teacher's canary, with everybody.
        return shards

    partition = trainer_module.teacher_indices
    for module in (trainer_module, canaries_module):
        monkeypatch.setattr(module, "teacher_indices", everywhere)
    assert audit(tmp_path)["num_teachers_disturbed"] > N / 4  # All whose own coin is not the first's.


@pytest.mark.slow
def test_what_is_trained_again_follows_the_direction_that_training_took(tmp_path):
    """Of a mechanism whose direction is not what it postprocesses: else teachers would see other images, and differ."""
    class Turned(TopAgg):
        def direction(self, noisy, step):
            return (-1.0)**step * super().direction(noisy, step)

    small = CONFIG.replace(num_teachers=8, num_steps=3, vote_threshold=None)
    turned = Turned(**{field.name: getattr(small.mechanism(), field.name) for field in dataclasses.fields(TopAgg)})
    found = audit_training(small, DATASET, tmp_path, num_canaries=8, mechanism=turned, noise=RoundedGaussianNoise())
    assert found["num_teachers_disturbed"] == 0


def test_canaries_change_one_record_of_their_own_teacher():
    partitions = np.arange(2 * N).reshape(N, 2)
    canaries = Canaries.make(DATASET, partitions, 5, seed=1)
    altered = canaries.insert(DATASET, np.array([True, False, True, False, False]))
    changed = np.flatnonzero(np.any(altered.images != DATASET.images, axis=(1, 2, 3)))
    assert changed.tolist() == [0, 4] and DATASET.images.max() == altered.images.max() == 255


@pytest.mark.slow
def test_a_run_whose_teachers_are_gone_is_no_proof(tmp_path):
    small = CONFIG.replace(num_teachers=4, num_steps=1)
    audit_training(small, DATASET, tmp_path, num_canaries=4, noise=RoundedGaussianNoise())
    (tmp_path / "private" / "teachers.bin").unlink()
    with pytest.raises(CheckpointError, match="teachers.bin does not hold .* delete"):
        audit_training(small, DATASET, tmp_path, num_canaries=4, noise=RoundedGaussianNoise())


def test_more_canaries_than_teachers_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="num_canaries=241 <= 240"):
        audit_training(CONFIG, DATASET, tmp_path, num_canaries=N + 1)


def test_a_generator_that_gives_canaries_away_is_caught():
    class Memory:
        """Draws the canaries and records that were in."""

        def released(self):
            return self

        def predict(self, inputs, batch_size, verbose):
            drawn = []
            for label in inputs[1]:
                known = [image for image, of in zip(images, labels) if of == label]
                drawn.append(known[len(drawn) % len(known)])
            return np.array(drawn)

    canaries = Canaries.make(DATASET, np.arange(2 * N).reshape(N, 2), N, seed=1)
    mixed = canaries.insert(DATASET, canaries.coins)
    images, labels = mixed.images[canaries.positions] / 255, mixed.labels[canaries.positions]
    scores = canaries_module._attack_generator(CONFIG, Memory(), canaries, DATASET)
    assert best_one_run_bound(scores, canaries.coins, 1e-5)["epsilon"] > 3
