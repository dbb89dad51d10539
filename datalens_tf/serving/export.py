"""Generators as SavedModels that TensorFlow and TensorFlow Serving run without this package."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any, Callable, Mapping

import numpy as np
import tensorflow as tf

from datalens_tf import _validate, rng
from datalens_tf._files import PathLike, clear_os_errors, fsync_directory, parse_json, temporary_sibling
from datalens_tf.config import LATENT_DISTRIBUTIONS
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError

_METADATA = "model.json"
_EXTRA = "assets.extra"  # the folder that TensorFlow Serving sets apart for files of the model's owner
_CHUNK = 500  # images generated at once, which bounds memory


def export_generator(generator: Callable[..., tf.Tensor], directory: PathLike, *, version: int = 1, latent_dim: int,
                     latent_distribution: str, num_classes: int, assets: Mapping[str, str | bytes] | None = None,
                     overwrite: bool = False) -> pathlib.Path:
    """Writes a generator as `<directory>/<version>/`, a SavedModel that holds its variables and nothing else.

    | signature | inputs | output `images` |
    |---|---|---|
    | `serving_default` | `labels` int64 [n] | uint8 [n, H, W, C], from fresh latents |
    | `sample` | `labels` int64 [n], `seed` int64 [n] | uint8 [n, H, W, C], image i a function of label i and seed i |
    | `from_latents` | `latents` float32 [n, z], `labels` int64 [n] | float32 [n, H, W, C] in [0, 1] |

    The folder appears whole or not at all.

    Args:
      generator: `generator([latents, labels], training=False)` with latents float32 [n, z] and labels int32 [n]
        returns images float32 [n, H, W, C] in [0, 1]; `generator.variables` are all its variables.
      directory: parent of the versions, made if missing.
      version: integer >= 1.
      latent_dim: z.
      latent_distribution: `uniform` (U(-1, 1)) or `normal` (N(0, 1)).
      num_classes: labels are in [0, num_classes).
      assets: file names and contents to put into `assets.extra/`, for example the privacy statement.
      overwrite: replaces an existing version.

    Returns:
      The folder written.

    Raises:
      InvalidArgumentError: an argument outside its domain, or a version that exists.
      DataLensError: the folder cannot be written.
    """
    _validate.integer("version", version, at_least=1)
    _validate.integer("latent_dim", latent_dim, at_least=1)
    _validate.one_of("latent_distribution", latent_distribution, LATENT_DISTRIBUTIONS)
    _validate.integer("num_classes", num_classes, at_least=2)
    for name in assets or {}:
        _validate.require(name == os.path.basename(name) not in ("", ".", "..", _METADATA), "asset name", name,
                          f"to be a plain file name other than {_METADATA}")
    target = pathlib.Path(directory) / str(version)
    if target.exists() and not overwrite:
        raise InvalidArgumentError(f"Expected version={version} not to exist yet, found {target}. "
                                   "Take another version or folder, or overwrite it.")
    module, signatures = _servable(generator, latent_dim, latent_distribution, num_classes)
    images = signatures["from_latents"].structured_outputs["images"].shape
    _validate.require(images.rank == 4 and images[1:].is_fully_defined(), "generator output shape", images.as_list(),
                      "to be [None, H, W, C] with H, W and C known")
    metadata = dict(image_shape=images[1:].as_list(), latent_dim=int(latent_dim),
                    latent_distribution=latent_distribution, num_classes=int(num_classes))
    files = {**(assets or {}), _METADATA: json.dumps(metadata, indent=2) + "\n"}

    aside = temporary_sibling(target)
    with clear_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            tf.saved_model.save(module, os.fspath(aside), signatures=signatures)
            (aside / _EXTRA).mkdir()
            for name, content in files.items():
                (aside / _EXTRA / name).write_bytes(content.encode() if isinstance(content, str) else content)
            _fsync_tree(aside)
            _move_into_place(aside, target)
        except tf.errors.OpError as error:
            raise DataLensError(f"Cannot write {target}: {error.message}. Choose another folder.") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedGenerator:
    """A generator loaded from a SavedModel of `export_generator`.

    Attributes:
      path: the version's folder.
      image_shape: (H, W, C).
      latent_dim, latent_distribution, num_classes: as exported.
      model: what `tf.saved_model.load` returned.
    """

    path: pathlib.Path
    image_shape: tuple[int, int, int]
    latent_dim: int
    latent_distribution: str
    num_classes: int
    model: Any

    def sample(self, labels: np.ndarray, seed: int | None = None) -> np.ndarray:
        """Draws one image per label.

        Args:
          labels: integers in [0, num_classes), [n].
          seed: makes the images reproducible: image i is a function of label i, i and the seed. None: fresh images.

        Returns:
          uint8 [n, H, W, C].

        Raises:
          InvalidArgumentError: labels of another shape, type or range.
        """
        labels = np.asarray(labels)
        if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
            raise InvalidArgumentError(
                f"Expected labels to be integers of shape [n], got {labels.dtype} {list(labels.shape)}.")
        if labels.size and not 0 <= labels.min() <= labels.max() < self.num_classes:
            raise InvalidArgumentError(
                f"Expected labels in [0, {self.num_classes}), got {labels.min()} to {labels.max()}.")
        images = np.empty((len(labels), *self.image_shape), np.uint8)
        seeds = None if seed is None else image_seeds(seed, len(labels))
        for start in range(0, len(labels), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            inputs = {"labels": tf.constant(labels[chunk], tf.int64)}
            if seeds is None:
                images[chunk] = self.model.signatures["serving_default"](**inputs)["images"]
            else:
                images[chunk] = self.model.signatures["sample"](**inputs, seed=tf.constant(seeds[chunk]))["images"]
        return images


def load_generator(path: PathLike) -> LoadedGenerator:
    """Loads a SavedModel of `export_generator`.

    Args:
      path: the folder of a version, or its parent, of which the largest version is taken.

    Raises:
      CheckpointError: there is none, or it is damaged or of another kind.
    """
    path = version_folder(path)
    try:
        metadata = parse_json((path / _EXTRA / _METADATA).read_text())
        metadata["image_shape"] = tuple(metadata["image_shape"])
        model = tf.saved_model.load(os.fspath(path))
        loaded = LoadedGenerator(path=path, model=model, **metadata)
        missing = {"serving_default", "sample"} - set(model.signatures)
    except Exception as error:  # A damaged SavedModel fails in JSON, protocol buffers, checkpoints or graph import.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path} is damaged or not a generator of this package: {reason}.") from error
    if missing:
        raise CheckpointError(f"{path} is not a generator of this package: it has no signature {min(missing)}.")
    return loaded


def version_folder(path: PathLike) -> pathlib.Path:
    """The folder of a SavedModel: the path itself, or its largest version. Raises CheckpointError if there is none."""
    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return path
    versions = [p for p in path.iterdir() if p.name.isdecimal()] if path.is_dir() else []
    if not versions:
        raise CheckpointError(f"Found no SavedModel in {path}. Name a folder that `datalens export` wrote.")
    return max(versions, key=lambda version: int(version.name))


def image_seeds(seed: int, num_images: int) -> np.ndarray:
    """One seed per image for the `sample` signature, int64 [num_images]; more images only append to it."""
    _validate.integer("seed", seed)
    return rng.stream(int(seed), "images").integers(0, 2**63 - 1, size=num_images, dtype=np.int64)


def _servable(generator, latent_dim: int, latent_distribution: str, num_classes: int):
    """A module that tracks the generator's variables, and the three signatures."""
    # The generator itself stays in the closure: tracked, Keras would store its class, layers and optimizer as well.
    module = tf.Module()
    module.generator_variables = list(generator.variables)
    labels_spec = tf.TensorSpec([None], tf.int64, "labels")

    def generate(latents, labels):
        message = f"labels must be in [0, {num_classes})"
        with tf.control_dependencies([
                tf.debugging.assert_non_negative(labels, message), tf.debugging.assert_less(
                    labels, tf.constant(num_classes, tf.int64), message)]):
            return tf.cast(generator([latents, tf.cast(labels, tf.int32)], training=False), tf.float32)

    def to_uint8(images):
        return {"images": tf.saturate_cast(tf.round(images * 255), tf.uint8)}

    @tf.function(input_signature=[tf.TensorSpec([None, latent_dim], tf.float32, "latents"), labels_spec])
    def from_latents(latents, labels):
        return {"images": generate(latents, labels)}

    @tf.function(input_signature=[labels_spec])
    def serving_default(labels):
        # Raw operations with seed 0 are seeded by the operating system. `tf.random` would store the exporting
        # process' global seed in the graph, and every server would start with the same images.
        shape = tf.stack([tf.size(labels), latent_dim])
        if latent_distribution == "normal":
            latents = tf.raw_ops.RandomStandardNormal(shape=shape, dtype=tf.float32)
        else:
            latents = 2 * tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32) - 1
        return to_uint8(generate(latents, labels))

    @tf.function(input_signature=[labels_spec, tf.TensorSpec([None], tf.int64, "seed")])
    def sample(labels, seed):
        def draw(image_seed):
            key = tf.stack([image_seed, tf.zeros_like(image_seed)])
            if latent_distribution == "normal":
                return tf.random.stateless_normal([latent_dim], key, alg="philox")
            return tf.random.stateless_uniform([latent_dim], key, -1, 1, alg="philox")

        return to_uint8(generate(tf.map_fn(draw, seed, fn_output_signature=tf.float32), labels))

    functions = {"serving_default": serving_default, "sample": sample, "from_latents": from_latents}
    return module, {name: function.get_concrete_function() for name, function in functions.items()}


def _fsync_tree(folder: pathlib.Path) -> None:
    """Makes every file below a folder durable."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
        fsync_directory(parent)


def _move_into_place(aside: pathlib.Path, target: pathlib.Path) -> None:
    """Renames; a folder cannot be renamed onto a full one, so an old version steps aside first."""
    old = temporary_sibling(target)
    if target.exists():
        target.rename(old)
    try:
        aside.rename(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            old.rename(target)
        raise
    fsync_directory(target.parent)
    shutil.rmtree(old, ignore_errors=True)
