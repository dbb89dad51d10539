"""Generators as SavedModels that TensorFlow and TensorFlow Serving run without this package."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epy
from numpy.typing import NDArray

from datalens_tf import _checksums, _validate
from datalens_tf._files import PathLike, clear_os_errors, did_you_mean, fsync_directory, parse_json, temporary_sibling
from datalens_tf.config import LATENT_DISTRIBUTIONS
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError
from datalens_tf.serving.sampling import checked_labels, checked_metadata, empty_images, image_seeds

with epy.lazy_imports():  # What a folder says of itself is read without TensorFlow.
    import tensorflow as tf

    from datalens_tf.serving import saving, signatures

METADATA = "model.json"
WARMUP = "tf_serving_warmup_requests"  # The name that TensorFlow Serving looks for.
CHECKSUMS = "SHA256SUMS"
_EXTRA = "assets.extra"  # the folder that TensorFlow Serving sets apart for files of the model's owner
_LARGEST_METADATA = 2**24  # bytes
_FOR_PEOPLE = tuple(f"{_EXTRA}/{name} " for name in ("LICENSE", "MODEL_CARD.md"))
_CHUNK = 500  # images generated at once, which bounds memory


def export_generator(generator: Callable[..., tf.Tensor], directory: PathLike, *, version: int = 1, latent_dim: int,
                     latent_distribution: str, num_classes: int, class_names: Sequence[str] | None = None,
                     assets: Mapping[str, str | bytes] | None = None, overwrite: bool = False) -> pathlib.Path:
    """Writes a generator as `<directory>/<version>/`, a SavedModel that holds its variables and nothing else.

    | signature | inputs | outputs |
    |---|---|---|
    | `serving_default` | `labels` int64 [n] | `images` uint8 [n, H, W, C], fresh ones |
    | `sample` | `labels` int64 [n], `seed` int64 [n] | `images` uint8 [n, H, W, C], each by its label and seed |
    | `png` | the same | `image_bytes` string [n], the same images as PNG files |
    | `from_latents` | `latents` float32 [n, z], `labels` int64 [n] | `images` float32 [n, H, W, C] in [0, 1] |
    | `generate` | `num_samples` int64 [], `seed` int64 [], -1 (the default) for fresh images | `images` uint8 \
      [num_samples, H, W, C] and `labels` int64 [num_samples], as equally many of each class as possible |
    | `looking` | as `sample` | the same without moves, grain and rectangles, of generators that add some; see \
      `--for looking` |
    | `describe` | `name` string [n], names of JSON files in `assets.extra` | `text` string [n], what they say |

    A request is for `signatures.MAX_IMAGES` images at most. The folder `assets.extra` has the settings (`model.json`),
    requests with which TensorFlow Serving warms up, the assets, and checksums of everything (`SHA256SUMS`).

    The folder appears whole or not at all.

    Args:
      generator: `generator([latents, labels], training=False)` with latents float32 [n, z] and labels int32 [n]
        returns images float32 [n, H, W, C] in [0, 1], without branching in Python on tensors;
        `generator.variables` are all its variables.
      directory: parent of the versions, made if missing.
      version: integer >= 1.
      latent_dim: z.
      latent_distribution: `uniform` (U(-1, 1)) or `normal` (N(0, 1)).
      num_classes: labels are in [0, num_classes).
      class_names: one text per class, public; by default their numbers.
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
    _validate.integer("num_classes", num_classes, at_least=1)
    for name in assets or {}:
        _validate.require(name == os.path.basename(name) not in ("", ".", "..", METADATA, WARMUP, CHECKSUMS),
                          "asset name", name, f"to be a plain file name other than {METADATA}, {WARMUP}, {CHECKSUMS}")
    class_names = list(map(str, range(num_classes)) if class_names is None else class_names)
    _validate.require(len(class_names) == num_classes, "class_names", class_names, f"to be {num_classes} names")
    target = pathlib.Path(directory) / str(version)
    if target.exists() and not overwrite:
        raise InvalidArgumentError(f"Expected version={version} not to exist yet, found {target}. "
                                   "Take another version or folder, or overwrite it.")
    images = generator([tf.zeros([1, latent_dim]), tf.zeros([1], tf.int32)], training=False).shape
    _validate.require(images.rank == 4, "generator output shape", images.as_list(), "to be [n, H, W, C]")
    metadata = dict(image_shape=images[1:].as_list(), latent_dim=int(latent_dim),
                    latent_distribution=latent_distribution, num_classes=int(num_classes), class_names=class_names)
    files = {METADATA: json.dumps(metadata, indent=2) + "\n", WARMUP: _warmup_requests(), **(assets or {})}
    texts = {name: content if isinstance(content, str) else content.decode() for name, content in files.items()
             if name.endswith(".json")}
    module, functions = signatures.servable(generator, latent_dim, latent_distribution, num_classes, texts)

    aside = temporary_sibling(target)
    with clear_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            saving.save(module, aside, functions)
            (aside / _EXTRA).mkdir()
            _add_assets(aside, files)
            _fsync_tree(aside)
            _move_into_place(aside, target)
        except tf.errors.OpError as error:
            raise DataLensError(f"Cannot write {target}: {error.message}. Choose another folder.") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target


def copy_export(source: PathLike, directory: PathLike, *, version: int = 1,
                assets: Mapping[str, str | bytes] | None = None) -> pathlib.Path:
    """Copies a SavedModel of `export_generator` to `<directory>/<version>/`, with more or other assets.

    The folder appears whole or not at all.

    Args:
      source: folder of a version.
      directory, version, assets: as for `export_generator`; other assets stay as they are.

    Raises:
      InvalidArgumentError: the version exists.
      CheckpointError: the source has other files than those that were written.
      DataLensError: the folder cannot be written.
    """
    _validate.integer("version", version, at_least=1)
    target = pathlib.Path(directory) / str(version)
    if target.exists():
        raise InvalidArgumentError(f"Expected version={version} not to exist yet, found {target}. "
                                   "Take another version or folder.")
    aside = temporary_sibling(target)
    with clear_os_errors(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, aside)
            check_files(aside, named=source)
            saving.clean(aside)  # An earlier version may have written it.
            _add_assets(aside, assets or {})
            _fsync_tree(aside)
            os.rename(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        fsync_directory(target.parent)
    return target


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedGenerator:
    """A generator loaded from a SavedModel of `export_generator`.

    Attributes:
      path: the version's folder.
      image_shape: (H, W, C).
      latent_dim, latent_distribution, num_classes, class_names: as exported.
      model: what `tf.saved_model.load` returned.
    """

    path: pathlib.Path
    image_shape: tuple[int, int, int]
    latent_dim: int
    latent_distribution: str
    num_classes: int
    class_names: tuple[str, ...]
    model: Any

    @property
    def has_looking(self) -> bool:
        """Whether it draws other images for people than for classifiers to learn from."""
        return "looking" in self.model.signatures

    def sample(self, labels: NDArray[Any], seed: int | None = None, *, looking: bool = False) -> NDArray[np.uint8]:
        """Draws one image per label.

        Args:
          labels: integers in [0, num_classes), [n].
          seed: makes the images reproducible: image i is a function of label i, i and the seed. None: fresh images.
          looking: leaves out the moves, grain and rectangles that some generators add for classifiers to learn from.

        Returns:
          uint8 [n, H, W, C].

        Raises:
          InvalidArgumentError: labels of another shape, type or range.
        """
        labels = checked_labels(labels, self.num_classes)
        images = empty_images(len(labels), self.image_shape)
        signature = "looking" if looking and self.has_looking else "sample"
        if seed is None and signature == "looking":
            seed = secrets.randbits(31)
        seeds = None if seed is None else image_seeds(seed, len(labels))
        for start in range(0, len(labels), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            inputs = {"labels": tf.constant(labels[chunk], tf.int64)}
            if seeds is None:
                images[chunk] = self.model.signatures["serving_default"](**inputs)["images"]
            else:
                images[chunk] = self.model.signatures[signature](**inputs, seed=tf.constant(seeds[chunk]))["images"]
        return images


def load_generator(path: PathLike) -> LoadedGenerator:
    """Loads a SavedModel of `export_generator`.

    Args:
      path: the folder of a version, or its parent, from which the largest version is taken.

    Raises:
      CheckpointError: there is no SavedModel, or it is damaged or of another kind.

    Example:
      >>> import numpy as np
      >>> from datalens_tf import load_generator
      >>> generator = load_generator("checkpoints/mnist_eps1/generator")
      >>> generator.sample(np.array([3, 1, 4]), seed=0).shape
      (3, 28, 28, 1)
    """
    path = version_folder(path)
    metadata = read_metadata(path)
    check_files(path)
    try:
        model = tf.saved_model.load(os.fspath(path))
        loaded = LoadedGenerator(path=path, model=model, **metadata)
        missing = {"serving_default", "sample"} - set(model.signatures)
        for name in {"serving_default", "sample"} - missing:
            images = model.signatures[name].structured_outputs["images"].shape
            if not images.is_compatible_with([None, *loaded.image_shape]):
                raise ValueError(f"{METADATA} says image_shape {list(loaded.image_shape)}, its images are {images}")
    except Exception as error:  # A damaged SavedModel fails in JSON, protocol buffers, checkpoints or graph import.
        raise _damaged(path, error) from error
    if missing:
        raise CheckpointError(f"{path} is not a generator of this package: it has no signature {min(missing)}.")
    return loaded


def check_files(version: PathLike, named: PathLike | None = None) -> None:
    """Compares the files of an exported version with its checksums, which those of older packages lack.

    Terms and cards, which people may have written themselves, may differ.

    Args:
      version: the folder.
      named: the folder that an error names, where it is another one.

    Raises:
      CheckpointError: a file is missing or was changed, so that the statement may be that of another generator.
    """
    version = pathlib.Path(version)
    sums = version / _EXTRA / CHECKSUMS
    found = [problem for problem in (_checksums.problems(version, sums)[0] if sums.exists() else ())
             if not problem.startswith(_FOR_PEOPLE)]
    if found:
        raise CheckpointError(f"{named or version} was altered, damaged or mixed up ({'; '.join(found[:3])}): copy it "
                              "again from where it was written.")


def read_metadata(path: PathLike) -> dict[str, Any]:
    """Reads the description of a generator in the folder of a version: `LoadedGenerator` without path and model.

    Raises:
      CheckpointError: it is damaged or no generator of this package.
    """
    path = pathlib.Path(path)
    file = path / _EXTRA / METADATA
    try:
        if file.stat().st_size > _LARGEST_METADATA:
            raise ValueError(f"{METADATA} has {file.stat().st_size} bytes")
        return checked_metadata(parse_json(file.read_text(encoding="utf-8")))
    except Exception as error:
        raise _damaged(path, error) from error


def _damaged(path: pathlib.Path, error: Exception) -> CheckpointError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return CheckpointError(f"{path} is damaged or not a generator of this package: {reason}.")


def version_folder(path: PathLike) -> pathlib.Path:
    """The folder of a SavedModel: the path itself, or its largest version. Raises CheckpointError if there is none."""
    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return path
    versions = [p for p in path.iterdir() if p.name.isdecimal()] if path.is_dir() else []
    if not versions:
        raise CheckpointError(f"Found no SavedModel in {path}. Name a run folder, or a folder that `datalens export` "
                              f"wrote.{did_you_mean(path)}")
    return max(versions, key=lambda version: int(version.name))


def _warmup_requests() -> bytes:
    """A TFRecord file with a request for each of three signatures: TensorFlow Serving warms up with them.

    There is none for `generate`: its inputs have no batch dimension, so a server that batches refuses them.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    inputs = {"serving_default": ["labels"], "sample": ["labels", "seed"], "png": ["labels", "seed"]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, WARMUP)
        with tf.io.TFRecordWriter(path) as writer:
            for signature, names in inputs.items():
                log = prediction_log_pb2.PredictionLog()
                log.predict_log.request.model_spec.signature_name = signature
                for name in names:
                    log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto([0], tf.int64))
                writer.write(log.SerializeToString(deterministic=True))
        return pathlib.Path(path).read_bytes()


def _add_assets(folder: pathlib.Path, assets: Mapping[str, str | bytes]) -> None:
    """Writes files to `assets.extra`, and the checksums of all files, in the format of sha256sum."""
    for name, content in assets.items():
        (folder / _EXTRA / name).write_bytes(content.encode() if isinstance(content, str) else content)
    sums = folder / _EXTRA / CHECKSUMS
    sums.unlink(missing_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
                            for path in files))


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
