"""GS-WGAN: a generator that sees one of many Wasserstein discriminators at a time, by noisy gradients of its images.

Source: Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private
Generators", NeurIPS 2020, centralized setting. Deviations:

- A step is charged as what it is: one release of all its gradients from one sample (`SanitizedGradients`). The
  statement has the paper's epsilon, too, and calls it invalid.
- The pick is drawn from the operating system's entropy and leaves no trace. In the paper, the picked discriminator
  keeps what it learned, so later answers depend on earlier picks. Amplification by sampling, which is for picks that
  nothing else depends on, is then not proven. Here discriminators train in turns, publicly. The one that is picked
  trains on a copy and answers, and the copy is thrown away. So a discriminator's state is a function of its records,
  public seeds and earlier releases. This doubles the work of a step.
- Neighbours differ in one replaced record; noise is exact.
- Discriminators' fakes carry the labels of their records (from a public pool with images of all labels).
- Generator and discriminators are small: the conditional DC-GAN generator of this package, and two convolutions.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import secrets
import typing
from collections.abc import Callable, Mapping
from typing import Any

from etils import epy

from datalens_tf import _files, _validate, rng
from datalens_tf.errors import DataError
from datalens_tf.facts import DataFacts
from datalens_tf.methods.base import Learner, LoopSynthesizer
from datalens_tf.methods.critics import CriticConfig, Critics, SanitizedStudent
from datalens_tf.settings import at_least, one_of, setting

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import accountants
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.data import partition as partitioning
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.mechanisms import sanitized_gradients

CHOOSE_WHEN = "you want the baseline of sanitized Wasserstein gradients, and have a large budget"
PUBLISHED_AS = "GS-WGAN"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GsWganConfig(CriticConfig):
    """Settings of GS-WGAN.

    The paper has 1,000 discriminators, batches of 32, 5 critic steps, clip_norm 1, latents of 10 numbers, 2,000 warm-up
    steps, 20,000 steps, and noise of 2.14 clip norms, which is a noise_multiplier of 1.07 / sqrt(32) = 0.189. It says
    that this costs epsilon = 10 at delta = 1e-5; in truth it costs 346.7 (`mechanisms.sanitized_gradients`). These
    steps need a noise_multiplier of 0.465 for epsilon = 10, and of 0.944 for epsilon = 1.
    """

    method: str = "gs_wgan"
    num_discriminators: int = setting(
        1000, "Wasserstein discriminators [N], one per disjoint partition. A step asks one of them. They are in memory "
        "with two moments each: with 16 filters, 0.3 GB for 1,000 on 28x28 images; with 64, 3.1 GB.", at_least(1))
    batch_size: int = setting(32, "Synthetic images per step [m], whose gradients are released jointly.")
    critic_steps: int = setting(
        5, "Optimizer steps of a discriminator before it answers, and whenever its turn to train comes.")
    warmup_steps: int = setting(
        50, "Optimizer steps of every discriminator against the untrained generator; free in privacy.", at_least(0))
    generator_filters: int = 32
    generator_units: int = 256
    # Other accountants cannot price sampling.
    accountant: str = setting("pld", "Accountant that measures the budget: rdp or pld.", one_of("rdp", "pld"))

    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, gradient_penalty, critic_steps, latent_dim and num_discriminators are those of the GS-WGAN paper, "
        "whose data are MNIST and Fashion-MNIST. Widths and learning rates were chosen on MNIST, whose real test split "
        "was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist", "fashion_mnist")

    @classmethod
    def for_data(cls, facts: DataFacts, epsilon: float | None, given: Mapping[str, Any]) -> typing.Self:
        """Extends `MethodConfig.for_data`: there are only as many discriminators as have enough records each."""
        default = cls.for_budget(epsilon)
        return default.replace(**{
            "num_discriminators": min(default.num_discriminators, facts.num_teachers), **given})

    def mechanism(self) -> sanitized_gradients.SanitizedGradients:
        """The mechanism of a step: one picked discriminator's gradients for the images of a batch."""
        return sanitized_gradients.SanitizedGradients(
            clip_norm=self.clip_norm, noise_multiplier=_validate.known("noise_multiplier", self.noise_multiplier),
            num_images=self.batch_size, num_discriminators=self.num_discriminators)

    def resolved(self, num_records: int, num_users: int | None = None) -> typing.Self:
        """Fills in the noise that the budget requires for all steps; see `RunConfig.resolved`."""
        return accountants.calibrated(self, self.num_steps, precision=1e-6)


_ASSUMPTIONS = (
    "Every record is in at most one of {num_discriminators} partitions, by its index and a public seed alone. Each "
    "discriminator sees one partition and shares no state with another.",
    "Each step asks one discriminator, picked uniformly by the operating system's entropy. Nobody learns which. "
    "Discriminators train by a public schedule; what the picked one does before it answers is thrown away. So nothing "
    "but its one answer depends on a pick.",
    "Sensitivity: one discriminator gives the gradients for all {batch_size} images of a step, each at most "
    "{clip_norm:g} long, so two answers differ by at most 2 * {clip_norm:g} * sqrt({batch_size}) = "
    "{l2_sensitivity:.6g} in l2 norm jointly, whatever the records are. The {batch_size} images of a step are one "
    "joint release from one sample, not {batch_size} releases with a sample each.",
    "Steps are composed adaptively: later steps may depend on everything released before.",
    "Public: the settings, the number of records, the list of classes, the image shape, the order of the records, and "
    "that pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_RELEASED = (
    "In each of {num_steps} steps, one of {num_discriminators} discriminators' gradients for {batch_size} images of "
    "the generator, each clipped to l2 norm {clip_norm:g}, with Gaussian noise of standard deviation "
    "{noise_stddev:.6g} on every coordinate: {noise_multiplier_per_step:.6g} times the joint sensitivity. The "
    "generator learned from these numbers alone. {num_charges} steps were charged to the privacy budget; "
    "{num_burnt_charges} of them never reached the generator because the run was interrupted.")
_ACCOUNTING = (
    " The published accounting, which takes the {batch_size} gradients of a step for independent samples, would claim "
    "epsilon = {invalid} for this run. THAT CLAIM IS WRONG and promises nothing; what holds is epsilon = {honest} "
    "({accountant}).")
# Edges of the histogram of gradient norms, in clip norms.
_NORMS = (0.0, *(2.0 ** (power / 2) for power in range(-16, 17)), math.inf)


class GradientSanitizedGan(Learner):
    """The generator, its discriminators, and the noise between them.

    Args:
      config: resolved settings.
      dataset: the records.
      mechanism: the mechanism through which the generator learns.
      noise: its noise.
    """

    student: SanitizedStudent

    def __init__(self, config: GsWganConfig, dataset: datasets.Dataset,
                 mechanism: sanitized_gradients.SanitizedGradients, noise: noises.NoiseSource):
        self._config, self._mechanism, self._noise = config, mechanism, noise
        self.student = SanitizedStudent(config)
        partitions = partitioning.teacher_indices(dataset, config.num_discriminators, config.partition_seed)
        self.critics = Critics(config, dataset, partitions)
        self._norms = tf.Variable(tf.zeros([2, len(_NORMS)], tf.int64))  # The last count: not finite.

    def variables(self) -> list[tf.Variable]:
        return [*self.student.variables(), *self.critics.variables(), self._norms]

    def warm_up(self, stopped: Callable[[], bool]) -> None:
        """Trains every discriminator against the untrained generator, as a function of its records and public seeds.

        Raises:
          KeyboardInterrupt: `stopped()` is true; nothing was charged.
        """
        pool = self._pool(0)
        for index in range(self._config.num_discriminators):
            if stopped():
                raise KeyboardInterrupt
            self.critics.train(index, pool, self._config.warmup_steps, "warm-up")

    def train(self, step: int, charge: int) -> float:
        """One step, paid for by this charge. Returns the loss of the generator, a function of what was released."""
        steps, pool = self._config.critic_steps, self._pool(step)
        # Discriminators train in turns, which everybody may know. Partitions were dealt at random.
        self.critics.train((step - 1) % self._config.num_discriminators, pool, steps, "turn", step)
        latents, labels = self.student.inputs(step)
        images = self.student.images(latents, labels)
        picked = pick(self._config, charge)
        gradients = self.critics.answer(picked, pool, steps, images, labels, "answer", step)
        clipped = self._mechanism.clip(gradients).numpy()
        self._count(gradients.numpy(), clipped)
        return self.student.train(latents, labels, self._mechanism.privatize(clipped, self._noise, charge))

    def guarantee(self, num_steps: int, ledger: ledgers.PrivacyLedger | None) -> statements.Guarantee:
        config, mechanism = self._config, self._mechanism
        facts, warning = _as_published(config, mechanism, _validate.known("ledger", ledger, "to be given"), self._noise)
        return statements.Guarantee(
            event=config.step_event(), assumptions=_ASSUMPTIONS, released=_RELEASED + warning,
            facts={"num_discriminators": config.num_discriminators, "batch_size": config.batch_size,
                   "clip_norm": config.clip_norm, "noise_stddev": mechanism.noise_stddev,
                   "l2_sensitivity": mechanism.l2_sensitivity} | facts,
            seeds=f"seed {config.seed} for weights, latents, labels and batches, and seed {config.partition_seed} for "
                  "the partitions")

    def finish(self, private: pathlib.Path) -> None:
        _files.atomic_write(private / "gradient_norms.json", json.dumps(self.gradient_norms()) + "\n")

    def gradient_norms(self) -> dict[str, Any]:
        """Histogram of gradients' norms. PRIVATE: computed from the records, and from the picks."""
        before, after = self._norms.numpy().tolist()
        clip_norm = self._config.clip_norm
        return {"note": "PRIVATE, never share: computed from the records without noise. counts[i] gradients had an l2 "
                        "norm from edges[i] on and below edges[i + 1], or more in the last one.",
                "clip_norm": clip_norm, "edges": [edge * clip_norm for edge in _NORMS[:-1]],
                "before_clipping": before[:-1],
                "after_clipping": after[:-1], "not_finite": before[-1]}

    def _pool(self, step: int) -> tf.Tensor:
        """Images of all labels for the discriminators' steps, about as many as they look at: [K, Y, H, W, C]."""
        config = self._config
        return self.student.pool(step, -(-config.critic_steps * config.critic_batch_size // config.data.num_classes))

    def _count(self, gradients: np.ndarray, clipped: np.ndarray) -> None:
        """Adds to the private histogram."""
        gradients = gradients.astype(np.float64)
        for row, vectors in enumerate((gradients / self._config.clip_norm, clipped / 2.0**20)):
            norms = np.linalg.norm(vectors, axis=1)
            finite = np.isfinite(norms)
            counts = np.append(np.histogram(norms[finite], _NORMS)[0], np.sum(~finite))
            self._norms.assign(self._norms.numpy() + np.eye(2, dtype=np.int64)[:, row:row + 1] * counts)


def pick(config: GsWganConfig, charge: int) -> int:
    """Draws the discriminator that answers, uniformly and as secretly as the noise; a seed is only for tests."""
    if config.insecure_noise_seed is not None:
        return int(rng.stream(config.insecure_noise_seed, "pick", charge).integers(config.num_discriminators))
    return secrets.randbelow(config.num_discriminators)


def _as_published(config: GsWganConfig, mechanism: sanitized_gradients.SanitizedGradients,
                  ledger: ledgers.PrivacyLedger, noise: noises.NoiseSource) -> tuple[dict[str, Any], str]:
    """Claim of the paper's accounting, as a fact, and as text together with the epsilon that holds.

    A run that is not private has neither: no epsilon applies to it.
    """
    if not noise.is_secure:
        return {"invalid_epsilon_as_published": None}, ""
    invalid = accountants.epsilon(mechanism.event_as_published(), ledger.num_charges, config.delta, "rdp")
    text = _ACCOUNTING.format(
        batch_size=config.batch_size, invalid=accountants.round_up(invalid),
        honest=accountants.round_up(ledger.spent()), accountant=config.accountant)
    return {"invalid_epsilon_as_published": invalid}, text


class GsWgan(LoopSynthesizer[GsWganConfig]):
    """A `RunSynthesizer` for GS-WGAN; its settings are a `GsWganConfig`.

    `private/gradient_norms.json` counts the norms of the images' gradients before and after clipping, which helps to
    tune clip_norm. The norms are computed from the records, without noise: the file must not be shared.
    """

    config_class = GsWganConfig

    def _learner(self, dataset: datasets.Dataset, noise: noises.NoiseSource) -> GradientSanitizedGan:
        if dataset.num_units < self.config.num_discriminators:
            raise DataError(f"Expected a record for each discriminator, got {dataset.num_units} for num_discriminators="
                            f"{self.config.num_discriminators}. Use fewer discriminators or more data.")
        return GradientSanitizedGan(self.config, dataset, self.config.mechanism(), noise)
