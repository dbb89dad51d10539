"""DataLens+: the moments of each class, a linear classifier of fixed features, and images on which both agree.

Three kinds of releases, each of sums over all records with Gaussian noise:

1. Per class, the sum of its images at half the resolution, and their number (`MeanEmbedding`).
2. Per class, the sum of r r^T over differences r between its images and the released mean (`SecondMoment`).
3. The summed gradient of a linear softmax classifier of scattering features, again and again (`LinearGradient`,
   `Scattering`), each at the weights that earlier sums led to.

The generator draws from the Gaussians that 1 and 2 describe, without the directions that noise alone would explain,
and moves images a little, as pictures of things move: a public prior. The classifier knows what moments cannot tell:
of several images, the first that it takes for the label is handed out. All that is post-processing.

Privacy, for one replaced record, its label included: the sensitivities are 2 of the shortened images in 1, sqrt(2) of
their squares in 2, and 2 of the shortened gradients in 3; each docstring has the argument. The releases compose
adaptively to one Gaussian release, exactly: with noise multipliers z_i, mu^2 = sum 1 / z_i^2. A release with noise
multiplier z / sqrt(n) is charged as n of z, which is the same mu^2. How many each gets is a setting, so a function of
nothing that was released. Fixed clips, the filters and the warps were chosen on MNIST; numbers of records per class are
released with the means, not read.
"""

from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, fingerprint, to_unit
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
from datalens_tf.training.run_folder import open_run

_ASSUMPTIONS = (
    "Sensitivity: replacing one record, label included, changes the sums of images by at most 2 * {mean_clip:g} in l2 "
    "norm, those of products by at most sqrt(2) * {covariance_clip:g}^2, and a summed gradient by at most "
    "2 * {classifier_clip:g}, whatever the record is: what is longer was shortened.",
    "Releases are composed adaptively: later ones depend on earlier ones. One with n charges has the noise of one "
    "charge divided by sqrt(n), which costs as much as n charges, exactly.",
    "Public: the settings, the number of records, the list of classes, the image shape, the filters, and that pixels "
    "are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_CHUNK = 1000  # records whose features are computed at once
_MEANS, _COVARIANCES = 1, 2  # the stored releases


class DataLensPlus(RunSynthesizer):
    """See `RunSynthesizer`; the settings are a `DataLensPlusConfig`."""

    config_class = DataLensPlusConfig
    _loop: Loop | None = None

    def __init__(self, config: DataLensPlusConfig | None = None, **kwargs):
        super().__init__(config, **kwargs)
        self.config = _with_latents(self.config)

    def _train(self, dataset: Dataset) -> tuple["Fitted", dict[str, Any]]:
        config = self.config = _calibrated(self.config)
        noise, event = noise_source(config), dp_accounting.GaussianDpEvent(config.noise_multiplier)
        self.folder.create()
        with exclusive(self.folder.path):
            identity = {"num_records": len(dataset), "checksum": fingerprint(dataset.images, dataset.labels)}
            ledger = open_run(self.folder, config, identity, event)
            releases = ReleaseStore(self.folder.releases)
            releases.check(ledger)
            fitted = Fitted(config)
            fitted.set_moments(*_moments(config, dataset, ledger, releases, noise))
            paid = config.mean_charges + config.covariance_charges
            self._loop = Loop(self.folder, fitted, fitted.variables(), num_steps=config.classifier_steps,
                              checkpoint_minutes=self._options.checkpoint_minutes, callbacks=self._callbacks,
                              ledger=ledger, event=event, report_every=10)
            if config.classifier_steps:
                classifier = _Classifier(config, dataset, fitted, noise)
                self._loop.run(classifier.step)
        guarantee = Guarantee(
            event=event, assumptions=_ASSUMPTIONS,
            facts={name: getattr(config, name) for name in (
                "mean_charges", "covariance_charges", "classifier_steps", "classifier_clip")}
            | dict(zip(("mean_clip", "covariance_clip"), _clips(config))),
            released="Per class, the sum of its images at half the resolution and their number ({mean_charges} "
                     "charges), and of the products of all pairs of their pixels ({covariance_charges} charges), "
                     "once each; and {classifier_steps} sums of a classifier's gradients, a charge each. A charge has Gaussian noise "
                     "of {noise_multiplier_per_step:.6g} times the sensitivity. The generator was computed from these "
                     "numbers alone. {num_charges} charges were made; {num_burnt_charges} of them paid for nothing "
                     "that reached the generator because the run was interrupted.",
            seeds=f"seed {config.seed} for latents and labels")
        num_burnt = len(ledger.charges) - paid - self._loop.done
        return fitted, make_statement(config, guarantee, ledger.charges, num_burnt, noise, len(dataset))

    def request_stop(self) -> None:
        if self._loop is None:  # Nothing that could be saved has begun.
            raise KeyboardInterrupt
        self._loop.stop_requested = True


class Fitted:
    """The generator, and what its classifier needs to go on learning."""

    def __init__(self, config: DataLensPlusConfig):
        self._config = config
        self._generator = FactorGenerator(
            config.image_shape, config.num_classes, num_factors=config.num_factors,
            num_candidates=config.num_candidates, warp=config.warp)
        self.weights = self._generator.classifier
        self.velocity = tf.Variable(tf.zeros_like(self.weights), trainable=False)

    def set_moments(self, means: np.ndarray, factors: np.ndarray) -> None:
        """Means [Y, HWC] and factors [Y, r, HWC] of images."""
        self._generator.means.assign(means)
        self._generator.factors.assign(factors)

    def released(self) -> FactorGenerator:
        """The generator to hand out."""
        return self._generator

    def sample_grid(self, per_class: int = 10) -> np.ndarray:
        """Images of the generator, uint8 [Y, per_class, H, W, C], one row per class."""
        classes, stream = self._config.num_classes, rng.stream(self._config.seed, "grid")
        latents = stream.standard_normal((classes * per_class, self._config.latent_dim), np.float32)
        images = self._generator([tf.constant(latents), tf.repeat(tf.range(classes), per_class)])
        images = np.round(255 * images.numpy()).astype(np.uint8)
        return images.reshape(classes, per_class, *self._config.image_shape)

    def variables(self) -> list[tf.Variable]:
        """All that changes from step to step."""
        return [self.weights, self.velocity]


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


def _moments(config: DataLensPlusConfig, dataset: Dataset, ledger: PrivacyLedger, releases: ReleaseStore,
             noise: NoiseSource) -> tuple[np.ndarray, np.ndarray]:
    """Means [Y, HWC] and factors [Y, r, HWC] of the classes, from two releases, made now or before."""
    mean_clip, covariance_clip = _clips(config)
    embedding = MeanEmbedding(noise_multiplier=config.noise_multiplier / config.mean_charges**0.5)
    moment = SecondMoment(clip_norm=covariance_clip,
                          noise_multiplier=config.noise_multiplier / config.covariance_charges**0.5)

    def released(step, num_charges, mechanism, sums):
        """The stored release, or a new one: charged, then drawn, then stored."""
        noisy = releases.load(step)
        if noisy is None:
            exact = sums()
            event = dp_accounting.GaussianDpEvent(config.noise_multiplier)
            charge = [ledger.spend(event, step=0) for _ in range(num_charges)][-1]
            noisy = mechanism.privatize(exact, noise, charge)
            releases.store(step, charge, noisy)
        return noisy

    def shortened():
        """Images at half the resolution, at most 1 long in units of the clip, with their labels."""
        for images, labels in _chunks(dataset):
            vectors = half_resolution(images)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            yield vectors * ((1 - 1e-9) / np.maximum(lengths, mean_clip)), labels

    noisy = released(_MEANS, config.mean_charges, embedding, lambda: embedding.sums(shortened(), config.num_classes))
    means = embedding.means(noisy).astype(np.float64) * mean_clip
    counts = embedding.counts(noisy)

    def residuals(label):
        for images, labels in _chunks(dataset):
            if np.any(labels == label):
                yield half_resolution(images[labels == label]) - means[label]

    def squares():
        size = means.shape[1]
        return np.stack([np.zeros((size, size)) + moment.sums(residuals(y)) for y in range(config.num_classes)])

    noisy = released(_COVARIANCES, config.covariance_charges, moment, squares)
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
