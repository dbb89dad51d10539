"""Signatures of an exported generator's SavedModel, in TensorFlow operations alone."""

import functools
from collections.abc import Callable, Mapping

import tensorflow as tf

MAX_IMAGES = 1024  # of one request: what a server needs for it stays in bounds.
MAX_TEXTS = 16  # names of one `describe` request: a name of bytes is answered by a statement of kilobytes.
FRESH = -1  # the seed that stands for none

_LABELS, _SEEDS = (tf.TensorSpec([None], tf.int64, name) for name in ("labels", "seed"))

# Nothing here branches in Python on tensors. Autograph looks for such branches, which takes most of an export's time.
_graph = functools.partial(tf.function, autograph=False)


class Released(tf.Module):
    """The generator of a loaded SavedModel, to be exported again as a part of another; see `export_generator`."""

    def __init__(self, model: tf.Module, latent_dim: int):
        super().__init__()
        self.latent_dim, self._images = latent_dim, model.signatures["from_latents"]
        self._variables = list(model.generator_variables)

    def __call__(self, inputs: tuple[tf.Tensor, tf.Tensor], training: bool = False) -> tf.Tensor:
        latents, labels = inputs
        return self._images(latents=latents, labels=tf.cast(labels, tf.int64))["images"]


def servable(generator: tf.Module, latent_dim: int, latent_distribution: str, num_classes: int,
             texts: Mapping[str, str]) -> tuple[tf.Module, dict[str, Callable]]:
    """A module that tracks the generator's variables, and the functions to serve (see `export_generator`).

    Args:
      generator, latent_dim, latent_distribution, num_classes: as for `export_generator`. A generator whose images are
        meant for classifiers to learn from may have other images for people, by `to_look_at([latents, labels])`.
      texts: name -> text that `describe` answers.
    """
    # The generator itself stays in the closure: if tracked, Keras would store its class, layers and optimizer as well.
    module = tf.Module()
    module.generator_variables = list(generator.variables)
    draw_latents = functools.partial(_latents, latent_dim=latent_dim, distribution=latent_distribution)
    latents_spec = tf.TensorSpec([None, latent_dim], tf.float32, "latents")
    images_of = _checked(functools.partial(generator, training=False), latents_spec, num_classes)
    pixels_of = _seeded(images_of, draw_latents)

    @_graph(input_signature=[_LABELS])
    def serving_default(labels):
        return {"images": pixels_of(labels, _fresh_seeds(tf.size(labels)))}

    @_graph(input_signature=[_LABELS, _SEEDS])
    def sample(labels, seed):
        return {"images": pixels_of(labels, seed)}

    @_graph(input_signature=[_LABELS, _SEEDS])
    def png(labels, seed):
        # The name's ending makes TensorFlow Serving's REST interface encode it as base64.
        return {"image_bytes": tf.map_fn(tf.io.encode_png, pixels_of(labels, seed), fn_output_signature=tf.string)}

    @_graph(input_signature=[latents_spec, _LABELS])
    def from_latents(latents, labels):
        return {"images": images_of(latents, labels)}

    @_graph(input_signature=[tf.TensorSpec([], tf.int64, "num_samples"), tf.TensorSpec([], tf.int64, "seed")])
    def generate(num_samples, seed=tf.constant(FRESH, tf.int64)):  # noqa: B008 (the signature's default)
        labels, seeds = _labels_and_seeds(num_samples, seed, num_classes)
        return {"images": pixels_of(labels, seeds), "labels": labels}

    @_graph(input_signature=[tf.TensorSpec([None], tf.string, "name")])
    def describe(name):
        return {"text": _texts_by_name(name, texts)}

    functions = [serving_default, sample, png, from_latents, generate, describe]
    if hasattr(generator, "to_look_at"):
        smooth_pixels_of = _seeded(_checked(generator.to_look_at, latents_spec, num_classes), draw_latents)

        @_graph(input_signature=[_LABELS, _SEEDS])
        def looking(labels, seed):
            return {"images": smooth_pixels_of(labels, seed)}

        functions.append(looking)
    return module, {function.__name__: function for function in functions}


def _checked(images_of, latents_spec, num_classes):
    """A graph of its own, with checks. Signatures call it, so that it is traced and stored only once."""
    @_graph(input_signature=[latents_spec, _LABELS])
    def images(latents, labels):
        range_message = f"labels must be in [0, {num_classes})"
        with tf.control_dependencies([
                _at_most_max_images(tf.size(labels)),
                tf.debugging.assert_equal(tf.shape(latents)[0], tf.size(labels), "expected one label per image"),
                tf.debugging.assert_non_negative(labels, range_message),
                tf.debugging.assert_less(labels, tf.constant(num_classes, tf.int64), range_message)]):
            return tf.cast(images_of([latents, tf.cast(labels, tf.int32)]), tf.float32)

    return images


def _seeded(images_of, draw_latents):
    """A graph as well: pixels by labels and seeds."""
    @_graph(input_signature=[_LABELS, _SEEDS])
    def pixels(labels, seeds):
        with tf.control_dependencies([
                _at_most_max_images(tf.size(seeds)),
                tf.debugging.assert_equal(tf.size(seeds), tf.size(labels), "expected one seed per label")]):
            latents = draw_latents(seeds)
        return tf.saturate_cast(tf.round(images_of(latents, labels) * 255), tf.uint8)

    return pixels


def _latents(seeds, latent_dim, distribution):
    """Latents float32 [n, latent_dim], each from its own seed."""
    def latent_of(seed):
        key = tf.stack([seed, tf.zeros_like(seed)])
        if distribution == "normal":
            return tf.random.stateless_normal([latent_dim], key, alg="philox")
        return tf.random.stateless_uniform([latent_dim], key, -1, 1, alg="philox")

    return tf.map_fn(latent_of, seeds, fn_output_signature=tf.float32)


def _labels_and_seeds(num_samples, seed, num_classes):
    """Labels, as equally many of each class as possible in random order, and a seed for each, all by one seed."""
    with tf.control_dependencies([
            tf.debugging.assert_positive(num_samples, "num_samples must be positive"),
            _at_most_max_images(num_samples),
            tf.debugging.assert_greater_equal(
                seed, tf.constant(FRESH, tf.int64), "seed must be 0 or more, or -1 for fresh images")]):
        seed = tf.where(seed == FRESH, _fresh_seeds(1)[0], seed)
    order, seeds = tf.unstack(tf.random.stateless_uniform(
        [2, num_samples], tf.stack([seed, tf.ones_like(seed)]), 0, tf.int64.max, tf.int64, alg="philox"))
    return tf.cast(tf.argsort(order) % num_classes, tf.int64), seeds


def _texts_by_name(names, texts):
    found = names[:, None] == tf.constant(list(texts))[None]
    with tf.control_dependencies([
            tf.debugging.assert_less_equal(tf.size(names), MAX_TEXTS, f"at most {MAX_TEXTS} names per request"),
            tf.debugging.assert_equal(
                tf.reduce_any(found, axis=1), True, f"name must be one of {', '.join(texts)}")]):
        return tf.gather(tf.constant(list(texts.values())), tf.argmax(found, axis=1))


def _at_most_max_images(count):
    return tf.debugging.assert_less_equal(
        tf.cast(count, tf.int64), tf.constant(MAX_IMAGES, tf.int64), f"at most {MAX_IMAGES} images per request")


def _fresh_seeds(count):
    """Seeds that nobody knows, int64 [count], drawn in the graph.

    Raw operations with seed 0 are seeded by the operating system. `tf.random` would store the exporting process' global
    seed in the graph, and every server would start with the same images.
    """
    bits = tf.raw_ops.RandomUniformInt(shape=[count], minval=tf.constant(0, tf.int64), maxval=tf.int64.max)
    return tf.cast(bits, tf.int64)
