"""DP-GAN as TensorFlow Privacy's Keras optimizer trains it, and as the package does: speed and accuracy. NOT PRIVATE.

    python run_scripts/studies/tf_privacy_gan.py [--dataset mnist] [--epsilon 1] [--seed 0] [--num_steps T]
        [--num_images N] [--epochs N]

Both have the same networks, generator steps, clip norm, noise multiplier, expected batch and number of steps, those of
DP-GAN at this budget. Two things differ. First, TensorFlow Privacy's optimizer clips the gradient of an example's whole
loss, the loss on its record and on one synthetic image together, and adds noise to the sum of these gradients; the
package clips and hides the gradient on the record alone. Second, TensorFlow Privacy's optimizer takes batches of one
size, drawn without replacement, although its accounting is of Poisson samples.

TensorFlow Privacy's training is NOT PRIVATE by the package's rules: its noise is drawn in floats by TensorFlow's
generator, whose seed decides it, and charges no ledger. The package's is done here without a run folder, with the same
secret noise as ever, so that both are timed alike; nothing of either is kept. The classifier is that of the frozen
protocol, tested on the test split.

TensorFlow Privacy's optimizer differentiates each example's loss as if it might depend on the whole batch. Its memory
therefore grows with the square of the batch: 18 GB for a layer of 17,248 weights and 512 examples. So it gets a batch
in equal pieces of at most 16 examples, and accumulates their gradients. The noise of a piece is divided by the square
root of their number, as its documentation asks for. Its Adam counts pieces as steps where it corrects its moments.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, to_unit, with_data
from datalens_tf.data.registry import load_dataset
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from datalens_tf.methods import registry
from datalens_tf.training.classifier import FROZEN, train_on_synthetic
from datalens_tf.training.student import draw_latents

_CHUNK = 1000  # images drawn at once
_PIECE = 16  # examples, at most, whose gradients TensorFlow Privacy's optimizer takes at once
(METHOD,) = (name for name, found in registry.methods().items() if found.published_as == "DP-GAN")
CONFIG, GAN = registry.config_class(METHOD), registry.synthesizer(METHOD).learner_class()


class KerasOptimizerGan(GAN):
    """The same networks; the discriminator learns by TensorFlow Privacy's optimizer. NOT PRIVATE: see above."""

    def __init__(self, config: MethodConfig, dataset: Dataset):
        super().__init__(config, dataset, RoundedGaussianNoise())
        self._pieces = next(count for count in range(1, config.batch_size + 1)
                            if config.batch_size % count == 0 and config.batch_size // count <= _PIECE)
        self._private = tfp.DPKerasAdamOptimizer(
            l2_norm_clip=config.clip_norm, noise_multiplier=config.noise_multiplier / self._pieces**0.5,
            num_microbatches=config.batch_size // self._pieces, gradient_accumulation_steps=self._pieces,
            learning_rate=config.learning_rate, beta_1=config.beta_1, beta_2=config.beta_2)
        self._learn = tf.function(self._discriminator_step, autograph=False)
        self._drawn = tf.function(lambda latents, labels: self.student.generator([latents, labels], training=True))

    def train(self, step: int, charge: int) -> float:
        """One step of the discriminator, then one of the generator; see the package's class."""
        config, stream = self._config, rng.stream(self._config.seed, "gan", step)
        chosen = stream.choice(len(self._dataset), config.batch_size, replace=False)
        labels = self._dataset.labels[chosen]
        fakes = self._drawn(draw_latents(config, stream, config.batch_size), labels).numpy()
        blur, other_blur = (np.asarray(self._blur(stream, config.batch_size)) for _ in range(2))
        batch = to_unit(self._dataset.images[chosen]) + blur, labels, fakes + other_blur
        for piece in zip(*(np.split(part, self._pieces) for part in batch)):
            self._learn(*piece)
        count = config.generator_batch_size
        latents, blur = draw_latents(config, stream, count), self._blur(stream, count)
        labels = np.tile(stream.integers(0, config.data.num_classes, count // 2), 2)
        return float(self._teach(latents, labels, blur))

    def _discriminator_step(self, images, labels, fakes):
        self._private.minimize(lambda: self._real_loss(self.critic(images, labels))
                               + self._fake_loss(self.critic(fakes, labels)), self.critic.weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_steps", type=int, help="by default those of DP-GAN")
    parser.add_argument("--num_images", type=int, default=FROZEN.num_synthetic)
    parser.add_argument("--epochs", type=int, default=FROZEN.epochs)
    args = parser.parse_args()
    train, test = (load_dataset(args.dataset, split=split) for split in ("train", "test"))
    config = with_data(CONFIG(epsilon=args.epsilon, adjacency="add-or-remove-one", seed=args.seed, **(
        {} if args.num_steps is None else {"num_steps": args.num_steps})), train).resolved(len(train))
    print(f"{config.num_steps} steps of {config.batch_size} records, noise multiplier {config.noise_multiplier:.4f}, "
          f"clip norm {config.clip_norm:g}")
    makers: dict[str, Callable[[], GAN]] = {
        "TensorFlow Privacy's Keras optimizer (NOT PRIVATE)": lambda: KerasOptimizerGan(config, train),
        "DP-GAN": lambda: GAN(config, train, RoundedGaussianNoise())}
    for name, seconds, gan in trained(makers, config.num_steps):
        images, labels = drawn(gan, config, args.num_images)
        found = train_on_synthetic(images, labels, test.images, test.labels, train.num_classes, epochs=args.epochs,
                                   seed=args.seed)
        print(f"{name}: {1000 * seconds:.0f} ms a step (median), accuracy {found.accuracy:.4f}", flush=True)


def trained(makers: dict[str, Callable[[], GAN]], num_steps: int) -> Iterator[tuple[str, float, GAN]]:
    """Each GAN after `num_steps` steps, with a step's median seconds; steps alternate, so that both share a load."""
    gans: dict[str, tuple[GAN, list[float]]] = {name: (make(), []) for name, make in makers.items()}
    for step in range(1, num_steps + 1):
        for gan, times in gans.values():
            start = time.monotonic()
            gan.train(step, step - 1)
            times.append(time.monotonic() - start)
    for name, (gan, times) in gans.items():
        yield name, statistics.median(times), gan


def drawn(gan: GAN, config: MethodConfig, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, H, W, C] of the generator as it would be released, and labels [count] in turn."""
    generator, stream = gan.student.released(), rng.stream(config.seed, "samples")
    labels = np.arange(count) % config.data.num_classes
    images = np.empty((count, *config.data.image_shape), np.uint8)
    for start in range(0, count, _CHUNK):
        chunk = labels[start:start + _CHUNK]
        latents = draw_latents(config, stream, len(chunk))
        images[start:start + _CHUNK] = np.round(255 * generator([latents, chunk], training=False).numpy())
    return images, labels


if __name__ == "__main__":
    main()
