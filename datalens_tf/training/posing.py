"""Generators as they are exported: with a choice, a warp and grain around them. Public, and free in privacy."""

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.facts import DataSpec
from datalens_tf.models.chosen import ChosenGenerator
from datalens_tf.models.warp import OfNormal, WarpedGenerator
from datalens_tf.training.classifier import QuickClassifier

_CHUNK = 1000  # images that are drawn at once
# What the choosing classifier learns from: as many images as choose among DataLens+'s candidates by default.
_IMAGES, _EPOCHS = 20_000, 6


def posed(generator: tf.Module, config: MethodConfig) -> tuple[tf.Module, str]:
    """A generator with what the settings put around it, and the distribution of its latents.

    A small classifier makes the choice. It has learned what images are meant to show from 20,000 images of the
    generator, with the warp and grain and with the generator's own labels. So it sees what most images of a label have
    in common, and leaves out those that came out as something else.
    """
    choices = _choices(config)
    if not (config.output_warp or config.output_grain or choices > 1):
        return generator, config.latent_distribution
    source = OfNormal(generator) if config.latent_distribution == "uniform" else generator

    def moved(source: tf.Module) -> WarpedGenerator:
        return WarpedGenerator(config.data.image_shape, [source], config.output_warp, config.output_grain,
                               on_black=True)

    if choices > 1:
        classifier = QuickClassifier(*config.data, config.seed)
        classifier.fit(*draw(moved(source), config.data, rng.stream(config.seed, "choices"), _IMAGES), _EPOCHS)
        source = ChosenGenerator(source, classifier.network, choices)
    return moved(source), "normal"


def described(config: MethodConfig) -> str:
    """Sentences on what the settings put around a generator; empty where they put nothing around it."""
    parts = []
    if _choices(config) > 1:
        parts.append(f"is the one of {_choices(config)} in which a classifier of the generator's own images is "
                     "surest to see its label")
    if config.output_warp:
        parts.append(f"is turned, sheared, scaled and shifted at random, with strength {config.output_warp:g}")
    if config.output_grain:
        parts.append(f"has grain with a mean standard deviation of {config.output_grain:g}")
    if not parts:
        return ""
    return (f"Each image {'; it '.join(parts)}. None of this sees records, and so it costs no privacy. The signature "
            "`looking` leaves moves and grain out.")


def _choices(config: MethodConfig) -> int:
    """Number of images among which one is chosen; 1 where there is one class, as all images then show their label."""
    return config.output_choices if config.data.num_classes > 1 else 1


def grid(generator: WarpedGenerator, config: MethodConfig, per_class: int) -> np.ndarray:
    """Images to look at: uint8 [Y, per_class, H, W, C], one row per class."""
    data = config.data
    images, _ = draw(generator, data, rng.stream(config.seed, "grid"), data.num_classes * per_class, looking=True)
    return images.reshape(per_class, data.num_classes, *data.image_shape).swapaxes(0, 1)


def draw(generator: WarpedGenerator, data: DataSpec, stream: np.random.Generator, count: int, looking: bool = False
         ) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, H, W, C], those to look at if `looking`, and labels [count] that take classes in turn."""
    labels, drawn = np.arange(count) % data.num_classes, generator.to_look_at if looking else generator
    images = np.empty((count, *data.image_shape), np.uint8)
    for start in range(0, count, _CHUNK):
        chunk = labels[start:start + _CHUNK]
        latents = stream.standard_normal((len(chunk), generator.latent_dim), np.float32)
        images[start:start + _CHUNK] = np.round(255 * drawn([tf.constant(latents), tf.constant(chunk)]).numpy())
    return images, labels
