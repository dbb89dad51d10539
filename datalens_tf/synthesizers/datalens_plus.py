"""DataLens+: the moments of each class, moved as pictures of things move, as far as the records tell.

Releases, each of sums over all records with Gaussian noise:

1. Per class, the sum of its images at half the resolution, and their number (`MeanEmbedding`).
2. Per class, the sum of r r^T over differences r between its images and the released mean (`SecondMoment`).
3. On request, the summed gradient of a linear softmax classifier of scattering features, again and again
   (`LinearGradient`, `Scattering`), each at the weights that earlier sums led to.
4. How many records are classified right by each of a few classifiers that saw synthetic images only (`CorrectCounts`).

The generator draws from the Gaussians that 1 and 2 describe, without the directions that noise alone would explain,
and moves images a little (`FactorGenerator`), a public prior that suits digits and not clothes: 4 says how far. With 3,
the first of several images that this classifier takes for the label is handed out. All that is post-processing.

Privacy, for one replaced record, its label included: the sensitivities are 2 of the shortened images in 1, sqrt(2) of
their squares in 2, 2 of the shortened gradients in 3, and sqrt(K) for K classifiers in 4; each docstring has the
argument. The releases compose adaptively to one Gaussian release, exactly: with noise multipliers z_i, mu^2 = sum
1 / z_i^2. A release with noise multiplier z / sqrt(n) is charged as n of z, which is the same mu^2. How many charges
each gets is a setting, so a function of nothing that was released. Clips, filters and the spread of warps were chosen
on MNIST; numbers of records per class are released with the means, not read.
"""

from typing import Any, Callable

import dp_accounting
import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, fingerprint, to_unit
from datalens_tf.errors import TrainingInterrupted
from datalens_tf.evaluation import utility
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.linear_gradient import LinearGradient
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.noise import NoiseSource, noise_source
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods import DataLensPlusConfig
from datalens_tf.models import factor_generator
from datalens_tf.models.factor_generator import FactorGenerator
from datalens_tf.models.scattering import Scattering
from datalens_tf.privacy import accounting
from datalens_tf.privacy.ledger import PrivacyLedger
from datalens_tf.privacy.statement import Guarantee, make_statement
from datalens_tf.synthesizers.base import RunSynthesizer
from datalens_tf.training.checkpoint import ReleaseStore, exclusive
from datalens_tf.training.loop import Loop
from datalens_tf.training.run_folder import RunFolder, open_run

_ASSUMPTIONS = (
    "Sensitivity: replacing one record, label included, changes the sums of images by at most 2 * {mean_clip:g} in l2 "
    "norm, those of products by at most sqrt(2) * {covariance_clip:g}^2, and a summed gradient by at most "
    "2 * {classifier_clip:g}, whatever the record is: what is longer was shortened. It changes each number of records "
    "that a classifier got right by at most 1.",
    "Releases are composed adaptively: later ones depend on earlier ones. One with n charges has the noise of one "
    "charge divided by sqrt(n), which costs as much as n charges, exactly.",
    "Public: the settings, the number of records, the list of classes, the image shape, the filters, and that pixels "
    "are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_CHUNK = 1000  # records whose features are computed at once
_MEANS, _COVARIANCES, _CHOICE = 1, 2, 3  # the stored releases


class DataLensPlus(RunSynthesizer):
    """See `RunSynthesizer`; the settings are a `DataLensPlusConfig`."""

    config_class = DataLensPlusConfig
    _loop: Loop | None = None

    def __init__(self, config: DataLensPlusConfig | None = None, **kwargs):
        super().__init__(config, **kwargs)
        self.config = _with_latents(self.config)

    def _train(self, dataset: Dataset) -> tuple["Fitted", dict[str, Any]]:
        config = self.config = _calibrated(self.config)
        self.folder.create()
        with exclusive(self.folder.path):
            identity = {"num_records": len(dataset), "checksum": fingerprint(dataset.images, dataset.labels)}
            event = dp_accounting.GaussianDpEvent(config.noise_multiplier)
            releases = _Releases(config, open_run(self.folder, config, identity, event), self.folder, event)
            fitted = Fitted(config)
            fitted.set_moments(*_moments(config, dataset, releases))
            self._loop = Loop(self.folder, fitted, fitted.variables(), num_steps=config.classifier_steps,
                              checkpoint_minutes=self._options.checkpoint_minutes, callbacks=self._callbacks,
                              ledger=releases.ledger, event=event, report_every=10)
            if config.classifier_steps:
                self._loop.run(_Classifier(config, dataset, fitted, releases.noise).step)
            fitted.set_warp(self._chosen_warp(dataset, fitted, releases))
        charges = releases.ledger.charges
        guarantee = Guarantee(
            event=event, assumptions=_ASSUMPTIONS,
            facts={name: getattr(config, name) for name in (
                "mean_charges", "covariance_charges", "classifier_steps", "selection_charges", "classifier_clip")}
            | dict(zip(("mean_clip", "covariance_clip"), _clips(config))),
            released="Per class, the sum of its images at half the resolution and their number ({mean_charges} "
                     "charges), and of the products of all pairs of their pixels ({covariance_charges} charges), once "
                     "each; {classifier_steps} sums of a classifier's gradients, a charge each; and, where there was "
                     "something to choose, how many records some classifiers of synthetic images got right "
                     "({selection_charges} charges). A charge has Gaussian noise of {noise_multiplier_per_step:.6g} "
                     "times the sensitivity. The generator was computed from these numbers alone. {num_charges} "
                     "charges were made; {num_burnt_charges} of them paid for nothing that reached the generator "
                     "because the run was interrupted.",
            seeds=f"seed {config.seed} for latents, labels and classifiers of synthetic images")
        return fitted, make_statement(config, guarantee, charges, len(charges) - releases.num_paid - self._loop.done,
                                      releases.noise, len(dataset))

    def _chosen_warp(self, dataset: Dataset, fitted: "Fitted", releases: "_Releases") -> float:
        """The warp whose images make the best classifier of the records, as far as noise lets that be seen.

        The first, where interruptions burnt what it costs to see: a run must be able to end.
        """
        config, choices = self.config, self.config.warp_choices
        if len(choices) == 1 or not releases.can_get(_CHOICE, config.selection_charges):
            return choices[0]
        mechanism = CorrectCounts(num_candidates=len(choices), noise_multiplier=releases.multiplier(
            config.selection_charges))

        def counted():
            predictions = []
            for warp in choices:
                if self._loop.stop_requested:
                    raise TrainingInterrupted(f"Interrupted before the warp was chosen; state saved in "
                                              f"{self.folder.path}. Continue with --resume.")
                fitted.set_warp(warp)
                images, labels = fitted.draw(config.selection_images, "selection")
                # Its test records are the private ones: what it says of them stays here.
                predictions.append(utility.train_on_synthetic(
                    images, labels, dataset.images, dataset.labels, config.num_classes, seed=config.seed,
                    epochs=config.selection_epochs).probabilities.argmax(1))
            return mechanism.sums(predictions, dataset.labels)

        return choices[int(np.argmax(releases.get(_CHOICE, config.selection_charges, mechanism, counted)))]

    def request_stop(self) -> None:
        if self._loop is None:  # Nothing that could be saved has begun.
            raise KeyboardInterrupt
        self._loop.stop_requested = True


class Fitted:
    """The generator, and what its classifier needs to go on learning."""

    def __init__(self, config: DataLensPlusConfig):
        self._config = config
        self._generator = FactorGenerator(config.image_shape, config.num_classes, num_factors=config.num_factors,
                                          num_candidates=config.num_candidates)
        self.weights = self._generator.classifier
        self.velocity = tf.Variable(tf.zeros_like(self.weights), trainable=False)

    def set_moments(self, means: np.ndarray, factors: np.ndarray) -> None:
        """Means [Y, HWC] and factors [Y, r, HWC] of images."""
        self._generator.means.assign(means)
        self._generator.factors.assign(factors)

    def set_warp(self, warp: float) -> None:
        """How far images are moved."""
        self._generator.warp = warp

    def released(self) -> FactorGenerator:
        """The generator to hand out."""
        return self._generator

    def draw(self, count: int, purpose: str) -> tuple[np.ndarray, np.ndarray]:
        """Images uint8 [count, H, W, C] and labels [count] in turn, by a public stream of that name."""
        stream, labels = rng.stream(self._config.seed, purpose), np.arange(count) % self._config.num_classes
        images = np.empty((count, *self._config.image_shape), np.uint8)
        for start in range(0, count, _CHUNK):
            chunk = labels[start:start + _CHUNK]
            latents = stream.standard_normal((len(chunk), self._config.latent_dim), np.float32)
            found = self._generator([tf.constant(latents), tf.constant(chunk)]).numpy()
            images[start:start + _CHUNK] = np.round(255 * found)
        return images, labels

    def sample_grid(self, per_class: int = 10) -> np.ndarray:
        """Images of the generator, uint8 [Y, per_class, H, W, C], one row per class."""
        images, _ = self.draw(self._config.num_classes * per_class, "grid")
        return images.reshape(per_class, self._config.num_classes, *self._config.image_shape).swapaxes(0, 1)

    def variables(self) -> list[tf.Variable]:
        """All that changes from step to step."""
        return [self.weights, self.velocity]


class _Releases:
    """What is released once: charged, then drawn, then stored; a resumed run finds it again."""

    def __init__(self, config: DataLensPlusConfig, ledger: PrivacyLedger, folder: RunFolder,
                 event: dp_accounting.DpEvent):
        self.ledger, self.noise, self.num_paid = ledger, noise_source(config), 0
        self._multiplier, self._event, self._store = config.noise_multiplier, event, ReleaseStore(folder.releases)
        self._store.check(ledger)

    def multiplier(self, num_charges: int) -> float:
        """The noise multiplier that so many charges pay for."""
        return self._multiplier / num_charges**0.5

    def can_get(self, number: int, num_charges: int) -> bool:
        """Whether it is stored, or the budget still pays for it."""
        return self._store.load(number) is not None or self.ledger.can_spend(
            dp_accounting.SelfComposedDpEvent(self._event, num_charges))

    def get(self, number: int, num_charges: int, mechanism: Any, sums: Callable[[], np.ndarray]) -> np.ndarray:
        """The stored release of this number, or a new one of these sums."""
        noisy = self._store.load(number)
        if noisy is None:
            exact = sums()
            charge = [self.ledger.spend(self._event, step=0) for _ in range(num_charges)][-1]
            noisy = mechanism.privatize(exact, self.noise, charge)
            self._store.store(number, charge, noisy)
        self.num_paid += num_charges
        return noisy


class _Classifier:
    """Gradient descent with momentum on all records' noisy gradient."""

    def __init__(self, config: DataLensPlusConfig, dataset: Dataset, fitted: Fitted, noise: NoiseSource):
        self._config, self._labels, self._fitted, self._noise = config, dataset.labels, fitted, noise
        self._mechanism = LinearGradient(clip_norm=config.classifier_clip, noise_multiplier=config.noise_multiplier)
        features_of = tf.function(Scattering(config.image_shape), reduce_retracing=True)
        self._features = np.concatenate([self._mechanism.grid(features_of(images).numpy())
                                         for images, _ in _chunks(dataset)])

    def step(self, number: int, charge: int) -> float:
        """Returns the norm of the released gradient: no loss, which would be private."""
        del number
        batches = ((self._features[start:start + _CHUNK], self._labels[start:start + _CHUNK])
                   for start in range(0, len(self._labels), _CHUNK))
        sums = self._mechanism.sums(batches, self._fitted.weights.numpy())
        gradient = self._mechanism.privatize(sums, self._noise, charge) / len(self._labels)
        velocity, weights = self._fitted.velocity, self._fitted.weights
        velocity.assign(self._config.classifier_momentum * velocity + gradient.astype(np.float32))
        weights.assign_sub(self._config.classifier_learning_rate * velocity)
        return float(np.linalg.norm(gradient))


def _moments(config: DataLensPlusConfig, dataset: Dataset, releases: _Releases) -> tuple[np.ndarray, np.ndarray]:
    """Means [Y, HWC] and factors [Y, r, HWC] of the classes, from two releases."""
    mean_clip, covariance_clip = _clips(config)
    embedding = MeanEmbedding(noise_multiplier=releases.multiplier(config.mean_charges))
    moment = SecondMoment(clip_norm=covariance_clip, noise_multiplier=releases.multiplier(config.covariance_charges))

    def shortened():
        """Images at half the resolution, at most 1 long in units of the clip, with their labels."""
        for images, labels in _chunks(dataset):
            vectors = half_resolution(images)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            yield vectors * ((1 - 1e-9) / np.maximum(lengths, mean_clip)), labels

    noisy = releases.get(_MEANS, config.mean_charges, embedding,
                         lambda: embedding.sums(shortened(), config.num_classes))
    means = embedding.means(noisy).astype(np.float64) * mean_clip
    counts = embedding.counts(noisy)

    def residuals(label):
        for images, labels in _chunks(dataset):
            if np.any(labels == label):
                yield half_resolution(images[labels == label]) - means[label]

    def squares():
        size = means.shape[1]
        return np.stack([np.zeros((size, size)) + moment.sums(residuals(y)) for y in range(config.num_classes)])

    noisy = releases.get(_COVARIANCES, config.covariance_charges, moment, squares)
    upscale = _upscaling(config.image_shape)
    factors = np.stack([_factors(*moment.mean(square, count), config.num_factors)
                        for square, count in zip(noisy, counts)])
    return (means @ upscale).astype(np.float32), (factors @ upscale).astype(np.float32)


def _factors(covariance: np.ndarray, floor: float, count: int) -> np.ndarray:
    """Rows [count, d] with F^T F the covariance in its largest directions above the floor; others are zero."""
    values, vectors = np.linalg.eigh(covariance)
    kept = np.argsort(values)[::-1][:count]
    kept = kept[values[kept] > floor]
    found = np.zeros((count, len(values)))
    found[:len(kept)] = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    return found


def half_resolution(images: np.ndarray) -> np.ndarray:
    """Sums of 2 x 2 pixels divided by 2, which keeps lengths of smooth images: float64 [n, HWC / 4]."""
    count, height, width, channels = images.shape
    squares = np.asarray(images, np.float64).reshape(count, height // 2, 2, width // 2, 2, channels)
    return squares.sum((2, 4)).reshape(count, -1) / 2


def _upscaling(image_shape: tuple[int, int, int]) -> np.ndarray:
    """The linear map back to whole resolution, smoothly: float64 [HWC / 4, HWC]."""
    height, width, channels = image_shape
    size = height * width * channels // 4
    units = tf.reshape(tf.eye(size), [size, height // 2, width // 2, channels])
    return tf.image.resize(units, [height, width], "bicubic").numpy().reshape(size, -1).astype(np.float64) / 2


def _clips(config: DataLensPlusConfig) -> tuple[float, float]:
    """The clips of images and of differences for this image shape."""
    scale = (np.prod(config.image_shape) / 784) ** 0.5
    return float(config.mean_clip * scale), float(config.covariance_clip * scale)


def _calibrated(config: DataLensPlusConfig) -> MethodConfig:
    """With the noise that the budget asks for, where none is given."""
    if config.noise_multiplier is not None:
        return config
    return config.replace(noise_multiplier=accounting.calibrate_noise_multiplier(
        config.num_charges, config.epsilon, config.delta, config.accountant))


def _with_latents(config: DataLensPlusConfig) -> MethodConfig:
    """With the number of latents that an image takes."""
    return config.replace(latent_dim=factor_generator.latent_dim(config.num_factors, config.num_candidates))


def _chunks(dataset: Dataset):
    """Images in [0, 1] and labels of all records."""
    for start in range(0, len(dataset), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        yield to_unit(dataset.images[chunk]), dataset.labels[chunk]
