"""The bank computes what separate Keras models compute, and no teacher ever feels another one's records."""

import collections
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.data.partition import partition_indices
from datalens_tf.errors import CheckpointError, TrainingDivergedError
from datalens_tf.models.warp import affine_warp
from datalens_tf.training import teachers
from datalens_tf.training.student import Student
from datalens_tf.training.teachers import TeacherRound, adam, build_teachers
from datalens_tf.training.trainer import teacher_rounds
from tests.models.keras_layers import keras_conv, keras_dense, label_planes
from tests.training import tiny
from tests.training.banks import arrays, from_images, make_bank, make_maps, make_rounds

CONFIG = tiny.CONFIG


def advance(bank, count=2, seed=0, warp=0.0):
    rng = np.random.default_rng(seed)
    images = tf.constant(rng.uniform(size=(CONFIG.batch_size, 8, 8, 1)), tf.float32)
    return bank.advance(from_images(make_rounds(count, seed, bank.batch_size), warp), images,
                        tf.constant([0, 1, 2], tf.int64), seed)


@pytest.mark.slow
def test_banks_share_what_is_compiled_where_it_computes_the_same(monkeypatch):
    monkeypatch.setattr(teachers, "_IDLE", collections.defaultdict(list))
    for changes, compiled in (({}, 1), ({"seed": 5, "num_steps": 9, "epsilon": 3.0}, 1), ({"learning_rate": 0.1}, 2)):
        advance(make_bank(tiny.dataset(), CONFIG.replace(**changes)))
        assert sum(map(len, teachers._IDLE.values())) == compiled


class KerasTeacher:
    """One teacher as ordinary Keras layers over label planes, with its own Adam."""

    def __init__(self, ensemble, teacher):
        self.conv_1, self.conv_2 = keras_conv(ensemble.conv_1, teacher), keras_conv(ensemble.conv_2, teacher)
        self.dense_3, self.dense_4 = keras_dense(ensemble.dense_3, teacher), keras_dense(ensemble.dense_4, teacher)
        self.norms = [tf.keras.layers.BatchNormalization(epsilon=1e-5) for _ in range(2)]
        self.optimizer = tf.keras.optimizers.legacy.Adam(
            CONFIG.learning_rate, beta_1=CONFIG.beta_1, beta_2=CONFIG.beta_2, epsilon=1e-8)

    def logits(self, images, labels):
        h = tf.nn.leaky_relu(self.conv_1(tf.concat([images, label_planes(labels, 8, 8)], -1)), 0.2)
        h = self.conv_2(tf.concat([h, label_planes(labels, 4, 4)], -1))
        h = tf.nn.leaky_relu(self.norms[0](h, training=True), 0.2)
        h = self.dense_3(tf.concat([tf.reshape(h, [len(h), -1]), labels], -1))
        h = tf.nn.leaky_relu(self.norms[1](h, training=True), 0.2)
        return self.dense_4(tf.concat([h, labels], -1))[:, 0]

    def step(self, real, fake, labels):
        with tf.GradientTape() as tape:
            loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
            total = loss(tf.ones(len(real)), self.logits(real, labels)) + loss(
                tf.zeros(len(fake)), self.logits(fake, labels))
        weights = [w for layer in (self.conv_1, self.conv_2, *self.norms, self.dense_3, self.dense_4)
                   for w in layer.trainable_weights]
        self.optimizer.apply_gradients(zip(tape.gradient(total, weights), weights))
        return float(total)


@pytest.mark.parametrize("kind, later", [(tf.bfloat16, 1e-5), (tf.float32, 5e-7)])
def test_adam_equals_keras(kind, later):
    """As far as moments have digits, in steps of 1e-3; in the first step there are none to keep."""
    rng = np.random.default_rng(0)
    variable = tf.Variable(rng.normal(size=(4, 50)), dtype=tf.float32)
    state = [variable.value(), tf.zeros([4, 50], kind), tf.zeros([4, 50], kind)]
    keras = tf.keras.optimizers.legacy.Adam(
        CONFIG.learning_rate, beta_1=CONFIG.beta_1, beta_2=CONFIG.beta_2, epsilon=1e-8)
    for step in range(1, 4):
        gradient = tf.constant(rng.normal(size=(4, 50)), tf.float32)
        keras.apply_gradients([(gradient, variable)])
        weight, m, v = adam(CONFIG, state, [gradient], tf.constant(step))
        assert m.dtype == v.dtype == kind
        np.testing.assert_allclose(weight, variable, rtol=0, atol=1e-7 if step == 1 else later)
        state = [weight, m, v]


@pytest.mark.parametrize("warp", [0.0, 3.0])
def test_optimizer_steps_equal_a_loop_over_keras_models(warp):
    def warped(images, side, number):
        maps = make_maps(number, 3, warp)
        return tf.constant(images) if maps is None else affine_warp(
            tf.constant(images, tf.float32), tf.constant(maps[side]))

    data = tiny.dataset(12)
    bank = make_bank(data, chunk_size=2)
    ensemble = build_teachers(CONFIG, CONFIG.num_teachers)
    for variable, value in zip(ensemble.trainable_variables, arrays(bank)):
        variable.assign(value)
    loop = [KerasTeacher(ensemble, t) for t in range(CONFIG.num_teachers)]
    rounds = make_rounds(2)
    _, losses = bank.advance(from_images(rounds, warp))
    partitions = partition_indices(12, CONFIG.num_teachers, CONFIG.partition_seed)
    for t, keras in enumerate(loop):
        classes = data.labels[partitions[t]]
        for i, (fakes, noise) in enumerate(rounds):
            real = warped(data.images[partitions[t]] / np.float32(255), 0, i) + noise[:3]
            fake = warped(np.stack([fakes[j, label] for j, label in enumerate(classes)]), 1, i) + noise[3:]
            loss = keras.step(real, fake, tf.one_hot(classes, 3))
            assert losses[t, i] == pytest.approx(loss, rel=1e-5)
    for variable, value in zip(ensemble.trainable_variables, arrays(bank)):
        variable.assign(value)
    # Adam divides gradients by their size: where one is nearly zero, rounding alone moves a weight by part of a step.
    tolerance = 0.05 * CONFIG.learning_rate
    for t, keras in enumerate(loop):
        for mine, other in [(keras_conv(ensemble.conv_1, t), keras.conv_1),
                            (keras_conv(ensemble.conv_2, t), keras.conv_2),
                            (keras_dense(ensemble.dense_3, t), keras.dense_3),
                            (keras_dense(ensemble.dense_4, t), keras.dense_4)]:
            for got, want in zip(mine.get_weights(), other.get_weights()):
                np.testing.assert_allclose(got, want, atol=tolerance)
        for got, norm in zip((ensemble.norm_2, ensemble.norm_3), keras.norms):
            np.testing.assert_allclose(got.gamma[t], norm.gamma, atol=tolerance)


@pytest.mark.parametrize("chunk_size,in_file,warp", [
    (1, False, 0.0), (3, False, 0.0), (4, False, 0.0), (3, True, 0.0), (3, False, 3.0)])
def test_replacing_one_record_leaves_every_other_teacher_bit_identical(tmp_path, chunk_size, in_file, warp):
    data, victim = tiny.dataset(20), 7
    other = tiny.dataset(20)
    other.images[victim] = 255 - other.images[victim]
    other.labels[victim] = (other.labels[victim] + 1) % 3
    banks = [make_bank(d, chunk_size=chunk_size, path=tmp_path / name if in_file else None)
             for name, d in (("data", data), ("other", other))]
    for step in range(3):
        for bank in banks:
            advance(bank, seed=step, warp=warp)
    partitions = partition_indices(20, CONFIG.num_teachers, CONFIG.partition_seed)
    owner = int(np.argwhere(partitions == victim)[0, 0])
    rest = [t for t in range(CONFIG.num_teachers) if t != owner]
    for mine, theirs in zip(*map(arrays, banks)):
        assert mine[rest].tobytes() == theirs[rest].tobytes()
    assert any(not np.array_equal(a[owner], b[owner]) for a, b in zip(*map(arrays, banks)))


@pytest.mark.parametrize("warp", [0.0, 3.0])
def test_vote_sums_of_neighbouring_data_sets_stay_within_the_sensitivity(warp):
    data, other = tiny.dataset(20), tiny.dataset(20)
    other.images[3], other.labels[3] = 0, 2
    sums = [advance(make_bank(d), warp=warp)[0] for d in (data, other)]
    assert 0 < np.linalg.norm(sums[0] - sums[1]) <= CONFIG.mechanism().l2_sensitivity(CONFIG.batch_size)


@pytest.mark.parametrize("warp", [0.0, 3.0])
def test_vote_sum_is_that_of_all_teachers_whatever_the_chunks(warp):
    sums = [advance(make_bank(tiny.dataset(20), chunk_size=size), warp=warp)[0] for size in (1, 3, 4)]
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])
    assert np.all(np.abs(sums[0]) <= CONFIG.num_teachers) and np.abs(sums[0]).sum() > 0


def test_a_state_in_a_file_gives_the_same_bits(tmp_path):
    banks = [make_bank(tiny.dataset(20), chunk_size=3, path=path) for path in (None, tmp_path / "bank")]
    assert [bank.persistent for bank in banks] == [False, True]
    for step in range(3):
        sums, losses = zip(*(advance(bank, seed=step) for bank in banks))
        np.testing.assert_array_equal(*sums)
        np.testing.assert_array_equal(*losses)
    for mine, theirs in zip(*map(arrays, banks)):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("survivors", [
    0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 3)), 4])
def test_a_step_that_death_interrupts_is_finished_with_the_same_bits(tmp_path, survivors):
    """Teachers that had taken the step vote again from where they are; the others take it now."""
    expected = make_bank(tiny.dataset(20), chunk_size=1)
    sums = [advance(expected, seed=step)[0] for step in range(2)]
    bank = make_bank(tiny.dataset(20), chunk_size=1, path=tmp_path / "bank")
    advance(bank, seed=0)
    write, count = bank._storage.write, iter(range(99))

    def dying(*args):
        if next(count) >= survivors:
            raise KeyboardInterrupt
        write(*args)

    bank._storage.write = dying
    if survivors < CONFIG.num_teachers:
        with pytest.raises(KeyboardInterrupt):
            advance(bank, seed=1)
    else:
        advance(bank, seed=1)
    again = make_bank(tiny.dataset(20), chunk_size=1, path=tmp_path / "bank")
    again.iterations = 2
    vote_sum, losses = advance(again, seed=1)
    np.testing.assert_array_equal(vote_sum, sums[1])
    assert np.isnan(losses).all(1).sum() == survivors
    for mine, theirs in zip(arrays(expected), arrays(again)):
        assert mine.tobytes() == theirs.tobytes()


def test_a_file_older_than_the_student_is_refused(tmp_path):
    bank = make_bank(tiny.dataset(20), path=tmp_path / "bank")
    advance(bank)
    with pytest.raises(CheckpointError, match="older than the student"):
        make_bank(tiny.dataset(20), path=tmp_path / "bank").iterations = 3


def test_each_teacher_reads_its_own_partition_only(monkeypatch):
    data = tiny.dataset(20)
    read = []

    class Recorder(np.ndarray):
        def __getitem__(self, index):
            if isinstance(index, np.ndarray):
                read.append(index)
            return np.asarray(self)[index]

    bank = make_bank(data, chunk_size=1)
    bank._images = data.images.view(Recorder)
    advance(bank)
    partitions = partition_indices(20, CONFIG.num_teachers, CONFIG.partition_seed)
    for teacher in range(CONFIG.num_teachers):
        mine = {int(i) for index in read[2 * teacher:2 * teacher + 2] for i in index.reshape(-1)}
        assert mine and mine <= set(partitions[teacher].tolist())


def test_instance_noise_off_means_off():
    bank_with_zero, bank_without = make_bank(tiny.dataset(20)), make_bank(tiny.dataset(20))
    (fakes, _), = make_rounds(1)
    zero = TeacherRound(fakes, np.zeros([6, 8, 8, 1], np.float32))
    bank_with_zero.advance([zero])
    bank_without.advance([TeacherRound(fakes, None)])
    for a, b in zip(arrays(bank_with_zero), arrays(bank_without)):
        np.testing.assert_array_equal(a, b)


def test_warps_are_public_and_new_for_each_step_and_none_without_the_setting():
    def maps(config, data):
        bank = make_bank(data, config)
        return [shared.maps for shared in teacher_rounds(config, bank, Student(config), 2)]

    assert maps(CONFIG, tiny.dataset()) == [None, None]
    config = CONFIG.replace(teacher_warp=1.5)
    found, others = (maps(config, tiny.dataset(seed=seed)) for seed in (0, 1))
    np.testing.assert_array_equal(found, others)
    assert found[0].shape == (2, 3, 2, 3) and len(np.unique(np.stack(found)[..., 0, 0])) == 12


def test_fakes_are_of_the_votes_latents_with_the_setting_and_of_their_own_without():
    student, config = Student(CONFIG), CONFIG.replace(shared_latents=True)
    latents = student.inputs(1)[0]

    def fakes(config, *latents):
        rounds = teacher_rounds(config, make_bank(tiny.dataset(), config), student, 2, *latents)
        return [shared.fakes for shared in rounds]

    own = fakes(CONFIG)
    np.testing.assert_array_equal(fakes(CONFIG, latents), own)
    np.testing.assert_array_equal(fakes(config), own)  # Before anything is voted on.
    assert not np.array_equal(own[0], own[1])
    expected = student.images(np.repeat(latents.numpy(), 3, axis=0), np.tile(np.arange(3), 3))
    for found in fakes(config, latents):
        np.testing.assert_array_equal(found.reshape(9, 8, 8, 1), expected)


def test_fakes_of_large_batches_take_the_votes_latents_again():
    student = Student(CONFIG)
    pool = student.pool(0, 7, student.inputs(1)[0]).numpy()
    assert pool.shape == (7, 3, 8, 8, 1)
    expected = student.images(np.repeat(student.inputs(1)[0].numpy()[[0, 1, 2, 0, 1, 2, 0]], 3, axis=0),
                              np.tile(np.arange(3), 7))
    np.testing.assert_array_equal(pool.reshape(21, 8, 8, 1), expected)


@pytest.mark.slow
def test_mixed_precision_stays_close_to_float32():
    banks = [make_bank(tiny.dataset(20), CONFIG.replace(precision=p)) for p in ("float32", "mixed_bfloat16")]
    losses = [advance(bank)[1] for bank in banks]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)
    assert not np.array_equal(losses[0], losses[1])


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_record_that_makes_its_teachers_loss_infinite_stops_nobody(tmp_path, value, in_file):
    """Its teacher goes on and votes for nothing; all that others see is as it would be, and so are their states."""
    data, victim = tiny.dataset(20), 7
    banks, images = [], data.images / np.float32(255)
    for name, pixels in (("data", images), ("other", images.copy())):
        if name == "other":
            pixels[victim] = value
        banks.append(make_bank(data, chunk_size=2, path=tmp_path / name if in_file else None))
        banks[-1]._images = pixels
    partitions = partition_indices(20, CONFIG.num_teachers, CONFIG.partition_seed)
    owner = int(np.argwhere(partitions == victim)[0, 0])
    rest = [t for t in range(CONFIG.num_teachers) if t != owner]
    for step in range(3):
        (votes, losses), (others_votes, others_losses) = (advance(bank, seed=step) for bank in banks)
        assert losses[rest].tobytes() == others_losses[rest].tobytes() and np.isfinite(losses).all()
        # The honest teacher has k votes for each image, the diverged one none.
        assert np.abs(votes - others_votes).sum() == CONFIG.top_k * CONFIG.batch_size
    assert not np.isfinite(others_losses[owner]).any() and banks[1].iterations == banks[0].iterations == 6
    for mine, theirs in zip(*map(arrays, banks)):
        assert mine[rest].tobytes() == theirs[rest].tobytes()


def test_images_of_the_student_that_are_not_finite_are_one_clear_error_before_a_teacher_sees_them():
    (fakes, noise), = make_rounds(1)
    with pytest.raises(TrainingDivergedError, match="student_learning_rate"):
        TeacherRound(fakes * np.float32(np.inf), noise)


_PLACEMENT = """
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from datalens_tf.training import teachers
from tests.training import tiny
from tests.training.banks import from_images, make_bank, make_rounds

used, sums = [], []
for device in ("CPU:0", "CPU:1"):
    teachers._IDLE.clear()  # Compiled for the other device.
    bank = make_bank(tiny.dataset(20))
    with tf.device(device):
        chunk = bank._borrow(tiny.CONFIG.num_teachers)
        call = chunk.advance

        def spy(*args):
            outputs = call(*args)
            used.append({tensor.device[-5:] for tensor in tf.nest.flatten(outputs)})
            return outputs

        chunk.advance = spy
        bank._idle(tiny.CONFIG.num_teachers).append(chunk)
        rounds = [shared.shared() for shared in from_images(make_rounds(2))]
        votes, losses = bank._visit(0, bank._batch_positions(2), rounds, tf.ones([3, 8, 8, 1]) / 2,
                                    tf.constant([0, 1, 2], tf.int64), 1)
    sums.append((votes, losses, [array.tobytes() for array in bank._storage.read(0)]))
assert used == [{"CPU:0"}, {"CPU:1"}], used
np.testing.assert_array_equal(sums[0][0], sums[1][0])
np.testing.assert_array_equal(sums[0][1], sums[1][1])
assert sums[0][2] == sums[1][2]
"""


@pytest.mark.slow
def test_nothing_is_pinned_to_a_device():
    """A whole visit runs where it is told to, here on a second virtual device, and the state comes back."""
    subprocess.run([sys.executable, "-c", _PLACEMENT], check=True)
