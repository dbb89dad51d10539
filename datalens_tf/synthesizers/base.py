"""What every synthesizer offers."""

import abc
import pathlib
from typing import Any

import numpy as np


class Synthesizer(abc.ABC):
    """Learns from sensitive images and hands out synthetic ones. The command line knows only this."""

    @abc.abstractmethod
    def fit(self, images: np.ndarray, labels: np.ndarray, *, num_classes: int | None = None) -> "Synthesizer":
        """Trains on images uint8 or float in [0, 1] [n, H, W, C] with integer labels [n]; returns itself.

        Args:
          images, labels: the sensitive records, in an order that does not depend on their content.
          num_classes: number of classes Y, public; by default the largest label plus one, which is then taken to be
            public knowledge.
        """

    @abc.abstractmethod
    def sample(self, num_images: int, *, labels: np.ndarray | None = None, seed: int | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
        """Draws synthetic images uint8 [num_images, H, W, C] and their labels int64 [num_images].

        Args:
          num_images: how many.
          labels: the labels to draw for; by default as equally many of each class as possible, in random order.
          seed: makes the draw reproducible.
        """

    @abc.abstractmethod
    def privacy_statement(self) -> dict[str, Any]:
        """What is guaranteed, as a JSON-able dictionary (`privacy.json` of the run folder)."""

    @abc.abstractmethod
    def export(self, directory: str, *, version: int = 1, step: int | None = None) -> pathlib.Path:
        """Writes the generator as a SavedModel `<directory>/<version>/` with its privacy statement; returns the path.

        Args:
          directory: parent of the versions.
          version: integer >= 1 that does not exist yet.
          step: the generator as it was after this step, with the statement of the charges until then; by default
            that of the whole run.
        """
