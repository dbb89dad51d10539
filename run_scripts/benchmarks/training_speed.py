"""How fast teachers train here, against what a user would write instead, in one run on one machine.

Prints one Markdown table: milliseconds per teacher and discriminator step for this package, for a loop of compiled
Keras models and (where PyTorch is installed) for a torch.func.vmap ensemble of the same network; seconds per generator
step at N = 4,000 MNIST, scaled from smaller N; arithmetic and memory against what the machine reaches.

    python run_scripts/benchmarks/training_speed.py --teachers 96 192 --repeats 5
"""

import argparse
import functools
import os
import statistics
import time

import numpy as np
import tensorflow as tf

from datalens_tf.methods.datalens import PRESETS
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.teachers import TeacherBank, TeacherRound

CONFIG = PRESETS["mnist", 1.0].replace(image_shape=(28, 28, 1), num_classes=10)
BATCH, CLASSES = CONFIG.teacher_batch_size, 10
FILTERS_1, FILTERS_2, UNITS = 1 + CLASSES, CONFIG.discriminator_filters + CLASSES, CONFIG.discriminator_units


def multiply_adds(batch: int) -> tuple[int, int, int]:
    """Multiply-adds of a forward pass, label planes as biases: first convolution, second convolution, dense layer."""
    return (batch * 14 * 14 * 25 * FILTERS_1, batch * 7 * 7 * 25 * FILTERS_1 * FILTERS_2,
            batch * 7 * 7 * FILTERS_2 * UNITS)


def step_flops() -> int:
    """FLOPs of a discriminator step on B real and B fake images: the first layer has no gradient of its input."""
    first, second, dense = multiply_adds(2 * BATCH)
    return 2 * (2 * first + 3 * second + 3 * dense)


def vote_flops() -> int:
    """FLOPs of the image gradients of m images: forward, and back to the input without gradients of weights."""
    return 2 * 2 * sum(multiply_adds(CONFIG.batch_size))


def median_seconds(call, repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def matrix_product_gflops(repeats: int) -> float:
    a = tf.random.normal([3072, 3072])
    return 2 * 3072**3 / median_seconds(lambda: tf.matmul(a, a).numpy(), repeats) / 1e9


def copy_gb_per_second(repeats: int) -> float:
    """Bytes read and written by a copy that no cache holds."""
    source = np.ones(2**28, np.uint8)
    target = np.empty_like(source)
    return 2 * source.nbytes / median_seconds(lambda: np.copyto(target, source), repeats) / 1e9


class Ours:
    """The bank with the MNIST preset and generated images."""

    def __init__(self, teachers: int, precision: str, threads: int):
        rng = np.random.default_rng(0)
        config = CONFIG.replace(num_teachers=teachers, precision=precision)
        records = teachers * BATCH
        self.bank = TeacherBank(
            config, rng.integers(0, 256, (records, 28, 28, 1), dtype=np.uint8), rng.integers(0, CLASSES, records),
            np.arange(records).reshape(teachers, BATCH), config.mechanism(),
            PerformanceOptions(num_threads=threads))
        self.round = TeacherRound(rng.random((BATCH, CLASSES, 28, 28, 1), np.float32),
                                  rng.standard_normal((2 * BATCH, 28, 28, 1), np.float32))
        self.images = tf.random.uniform([CONFIG.batch_size, 28, 28, 1])
        self.labels = tf.range(CONFIG.batch_size, dtype=tf.int64) % CLASSES

    def teacher_steps(self, count: int) -> None:
        self.bank.advance([self.round] * count)

    def generator_step(self) -> None:
        self.bank.advance([self.round] * CONFIG.teacher_steps, self.images, self.labels)

    def state_bytes(self) -> int:
        return sum(block.nbytes for index in range(self.bank.num_arrays) for block in self.bank.blocks(index))


def keras_loop(teachers: int):
    """A step of each of several separate Keras models, every one compiled."""
    def label_planes(images, labels):
        return tf.concat([images, tf.tile(labels[:, None, None], [1, *images.shape[1:3], 1])], -1)

    class Discriminator(tf.keras.Model):
        def __init__(self):
            super().__init__()
            layers = tf.keras.layers
            self.conv_1, self.conv_2 = (layers.Conv2D(n, 5, 2, "same") for n in (FILTERS_1, FILTERS_2))
            self.dense_3, self.dense_4 = layers.Dense(UNITS), layers.Dense(1)
            self.norm_2, self.norm_3 = layers.BatchNormalization(), layers.BatchNormalization()

        def call(self, inputs):
            images, labels = inputs
            hidden = tf.nn.leaky_relu(self.conv_1(label_planes(images, labels)), 0.2)
            hidden = tf.nn.leaky_relu(self.norm_2(self.conv_2(label_planes(hidden, labels)), training=True), 0.2)
            hidden = tf.concat([tf.reshape(hidden, [-1, 49 * FILTERS_2]), labels], -1)
            hidden = tf.nn.leaky_relu(self.norm_3(self.dense_3(hidden), training=True), 0.2)
            return self.dense_4(tf.concat([hidden, labels], -1))

    def compiled():
        model = Discriminator()
        optimizer = tf.keras.optimizers.legacy.Adam(1e-3, beta_1=0.5)

        @tf.function
        def step(real, fake, labels):
            with tf.GradientTape() as tape:
                loss = (tf.reduce_mean(tf.nn.softplus(-model([real, labels])))
                        + tf.reduce_mean(tf.nn.softplus(model([fake, labels]))))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return loss

        return step

    steps = [compiled() for _ in range(teachers)]
    real, fake = tf.random.uniform([2, BATCH, 28, 28, 1])
    labels = tf.one_hot(tf.range(BATCH) % CLASSES, CLASSES)
    return lambda: [step(real, fake, labels) for step in steps]


def torch_vmap(teachers: int):
    """A step of a torch.func.vmap ensemble of the same network with Adam; None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    functional = torch.nn.functional

    def weight(*shape):
        return (0.02 * torch.randn(teachers, *shape)).requires_grad_(False)

    weights = dict(
        conv_1=weight(FILTERS_1, 1 + CLASSES, 5, 5), bias_1=weight(FILTERS_1),
        conv_2=weight(FILTERS_2, FILTERS_1 + CLASSES, 5, 5), dense_3=weight(UNITS, 49 * FILTERS_2 + CLASSES),
        dense_4=weight(1, UNITS + CLASSES), gamma_2=weight(FILTERS_2) + 1, beta_2=weight(FILTERS_2),
        gamma_3=weight(UNITS) + 1, beta_3=weight(UNITS))
    moments = [{name: torch.zeros_like(value) for name, value in weights.items()} for _ in range(2)]

    def logits(w, images, labels):
        def planes(maps):
            return torch.cat([maps, labels[:, :, None, None].expand(-1, -1, *maps.shape[2:])], 1)

        def normalised(x, gamma, beta):
            axes = [0, *range(2, x.dim())]
            mean, variance = x.mean(axes, keepdim=True), x.var(axes, keepdim=True, unbiased=False)
            shape = [1, -1] + [1] * (x.dim() - 2)
            return (x - mean) / torch.sqrt(variance + 1e-5) * gamma.reshape(shape) + beta.reshape(shape)

        def convolved(maps, kernel, bias=None):  # As TensorFlow pads: 1 before, 2 after.
            return functional.conv2d(functional.pad(planes(maps), (1, 2, 1, 2)), kernel, bias, stride=2)

        hidden = functional.leaky_relu(convolved(images, w["conv_1"], w["bias_1"]), 0.2)
        hidden = functional.leaky_relu(normalised(convolved(hidden, w["conv_2"]), w["gamma_2"], w["beta_2"]), 0.2)
        hidden = torch.cat([hidden.flatten(1), labels], 1) @ w["dense_3"].T
        hidden = functional.leaky_relu(normalised(hidden, w["gamma_3"], w["beta_3"]), 0.2)
        return torch.cat([hidden, labels], 1) @ w["dense_4"].T

    def loss(w, real, fake, labels):
        return functional.softplus(-logits(w, real, labels)).mean() + functional.softplus(
            logits(w, fake, labels)).mean()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(0, 0, 0, 0))
    real, fake = torch.rand(2, teachers, BATCH, 1, 28, 28)
    labels = functional.one_hot(torch.arange(BATCH) % CLASSES, CLASSES).float().expand(teachers, -1, -1)

    def step():
        with torch.no_grad():
            for name, gradient in gradients(weights, real, fake, labels).items():
                m, v = moments[0][name], moments[1][name]
                m.mul_(0.5).add_(gradient, alpha=0.5)
                v.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
                weights[name].addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", type=int, nargs="+", default=[96, 192], help="sizes of our ensemble")
    parser.add_argument("--repeats", type=int, default=5, help="of every measurement; the median is printed")
    parser.add_argument("--num_threads", type=int, default=os.cpu_count(), help="chunks of teachers side by side")
    args = parser.parse_args()
    # As the command line trains: operations are not split, chunks run side by side. The machine and the Keras loop are
    # measured in a process that splits operations over all cores, which is better for them.
    results = _in_child(_ours, args), _in_child(_others, args)
    print(_table(args, *results))


def _in_child(function, args):
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (args,))


def _ours(args) -> dict:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(args.num_threads)
    found = {}
    for precision in ("mixed_bfloat16", "float32"):
        for teachers in args.teachers:
            ours = Ours(teachers, precision, args.num_threads)
            found[precision, teachers] = {
                "one step a visit": median_seconds(functools.partial(ours.teacher_steps, 1), args.repeats) / teachers,
                "five steps a visit": median_seconds(
                    functools.partial(ours.teacher_steps, 5), args.repeats) / teachers / 5,
                "generator step": median_seconds(ours.generator_step, args.repeats) / teachers,
                "state": ours.state_bytes() / teachers}
    return found


def _others(args) -> dict:
    found = {"gflops": matrix_product_gflops(args.repeats), "copy": copy_gb_per_second(args.repeats),
             "keras": median_seconds(keras_loop(4), 10 * args.repeats) / 4, "vmap": None}
    step = torch_vmap(32)
    if step:
        found["vmap"] = median_seconds(step, args.repeats) / 32
    return found


def _table(args, ours: dict, others: dict) -> str:
    largest = max(args.teachers)
    best = ours["mixed_bfloat16", largest]["one step a visit"]
    rows = [("| what | ms per teacher and step | GFLOP/s | share of the matrix product | ours is faster by |"),
            "|---|---|---|---|---|"]

    def row(name, seconds):
        speed = step_flops() / seconds / 1e9
        rows.append(f"| {name} | {1e3 * seconds:.2f} | {speed:.0f} | {speed / others['gflops']:.0%} | "
                    f"{seconds / best:.2f} |")

    for (precision, teachers), found in ours.items():
        for what in ("one step a visit", "five steps a visit"):
            row(f"ours, N = {teachers}, {precision}, {what}", found[what])
    row("loop of compiled Keras models", others["keras"])
    if others["vmap"]:
        row("torch.func.vmap, 32 teachers", others["vmap"])
    rows += ["", "| generator step, scaled to N = 4,000 | seconds | GFLOP/s | state, GiB |", "|---|---|---|---|"]
    for (precision, teachers), found in ours.items():
        work = CONFIG.teacher_steps * step_flops() + vote_flops()
        rows.append(f"| {precision}, measured at N = {teachers} | {4000 * found['generator step']:.1f} | "
                    f"{work / found['generator step'] / 1e9:.0f} | {4000 * found['state'] / 2**30:.1f} |")
    state = ours["mixed_bfloat16", largest]["state"]
    traffic = 2 * state / ours["mixed_bfloat16", largest]["generator step"] / 1e9
    rows += ["", f"Machine: {others['gflops']:.0f} GFLOP/s in a float32 matrix product, {others['copy']:.1f} GB/s in a "
             f"copy (read + write), {args.num_threads} threads. Reading and writing the state alone moves "
             f"{traffic:.1f} GB/s. A step is {step_flops() / 1e6:.0f} MFLOP with label planes as biases."]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
