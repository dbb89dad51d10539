"""Synthetic images in memory, and what they become: folders of pictures, and data sets of other libraries."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epy

from datalens_tf import _files
from datalens_tf.errors import InvalidArgumentError

with epy.lazy_imports():
    import numpy as np

    from datalens_tf.data import datasets, image_grid, writing

ROWS, COLUMNS = 10, 8  # of a picture


class Samples:
    """Synthetic images and their labels; `images, labels = samples` unpacks them.

    Attributes:
      images: uint8 [n, H, W, C].
      labels: int64 [n].
      class_names: one text per class.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]):
        self.images, self.labels, self.class_names = images, labels, tuple(class_names)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.images, self.labels))

    def __repr__(self) -> str:
        count, height, width, channels = self.images.shape
        return f"Samples: {count:,} images [{height}, {width}, {channels}] of {len(self.class_names)} classes"

    def to_tf_data(self) -> Any:
        """A `tf.data.Dataset` of pairs: image uint8 [H, W, C], label int64."""
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((self.images, self.labels))

    def to_torch(self) -> Any:
        """A torch `TensorDataset` of pairs: image float32 [C, H, W] in [0, 1], label int64; needs torch."""
        torch = _optional("torch")
        images = np.ascontiguousarray(datasets.to_unit(self.images).transpose(0, 3, 1, 2))
        return torch.utils.data.TensorDataset(torch.from_numpy(images), torch.from_numpy(self.labels))

    def to_hugging_face(self) -> Any:
        """A Hugging Face `Dataset` with the columns `image` and `label`, whose classes have names; needs datasets."""
        hugging_face = _optional("datasets")
        features = hugging_face.Features({"image": hugging_face.Image(),
                                          "label": hugging_face.ClassLabel(names=list(self.class_names))})
        pictures = [{"bytes": image_grid.png_bytes(image), "path": None} for image in self.images]
        return hugging_face.Dataset.from_dict({"image": pictures, "label": self.labels.tolist()}, features=features)

    def to_folder(self, path: _files.PathLike) -> pathlib.Path:
        """Writes PNG files into a new folder, a sub-folder per class; returns the folder."""
        folder = pathlib.Path(path)
        writing.write_images(folder, writing.format_of(folder, "png"), self.images, self.labels, self.class_names)
        return folder

    def picture(self) -> Any:
        """A Pillow picture of some of the images, a row for each of the first classes."""
        import io

        from PIL import Image

        return Image.open(io.BytesIO(self._repr_png_()))

    def _repr_png_(self) -> bytes:
        """The picture, for notebooks."""
        present = [label for label in range(len(self.class_names)) if (self.labels == label).any()][:ROWS]
        rows = [np.resize(np.flatnonzero(self.labels == label)[:COLUMNS], COLUMNS) for label in present]
        grid = image_grid.image_grid(self.images[np.array(rows)])
        return image_grid.png_bytes(grid, scale=max(1, 480 // max(grid.shape[:2])))


def _optional(package: str) -> Any:
    """A package that is not a dependency; raises InvalidArgumentError if it is not installed."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InvalidArgumentError(f"Expected {package} to be installed: pip install {package}") from error
