"""GS-WGAN: a generator that sees one of many Wasserstein discriminators at a time, by noisy gradients of its images.

Source: Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private
Generators", NeurIPS 2020, centralized setting. What deviates:

- A step is charged as what it is, one release of all its gradients from one sample (`SanitizedGradients`). The paper's
  epsilon is in the statement, as what it is, too: invalid.
- Who is picked is drawn from the operating system's entropy and leaves no trace. In the paper the picked discriminator
  keeps what it learned, so that later answers depend on earlier picks, and amplification by sampling, which is for
  picks that nothing else depends on, is not proven. Here discriminators train in turns, publicly; the one that is
  picked trains on a copy, answers, and the copy is thrown away. So a discriminator's state is a function of its
  records, public seeds and earlier releases. This doubles the work of a step.
- Neighbours differ in one replaced record; noise is exact.
- Discriminators' fakes carry the labels of their records (from a public pool with images of all labels).
- Generator and discriminators are small: the conditional DC-GAN generator of this package, and two convolutions.
"""

import collections
import json
import secrets
from typing import Any, Callable, Sequence

import dp_accounting
import numpy as np
import tensorflow as tf

from datalens_tf import _files, rng
from datalens_tf.data.datasets import Dataset, to_unit
from datalens_tf.data.identity import Fingerprint
from datalens_tf.data.partition import partition_indices, usable_indices
from datalens_tf.errors import DataError
from datalens_tf.mechanisms.noise import NoiseSource, SecretStream, noise_source
from datalens_tf.mechanisms.sanitized_gradients import SanitizedGradients
from datalens_tf.methods import CriticConfig, GsWganConfig
from datalens_tf.models.wasserstein import WassersteinCritic
from datalens_tf.privacy import accounting
from datalens_tf.privacy.ledger import PrivacyLedger
from datalens_tf.privacy.statement import Guarantee, make_statement, round_up
from datalens_tf.synthesizers.base import RunSynthesizer
from datalens_tf.training.checkpoint import exclusive
from datalens_tf.training.loop import Loop
from datalens_tf.training.run_folder import open_run
from datalens_tf.training.student import AveragedGenerator, Student

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
_NORMS = np.concatenate([[0.0], 2.0 ** np.arange(-8, 8.5, 0.5), [np.inf]])

Batches = collections.namedtuple("Batches", ["records", "fakes", "mix"])


class GsWgan(RunSynthesizer):
    """See `RunSynthesizer`; the settings are a `GsWganConfig`.

    For those who tune clip_norm, `private/gradient_norms.json` counts the norms of the images' gradients before and
    after clipping. They are computed from the records, without noise: the file must not be shared.
    """

    config_class = GsWganConfig
    _loop: Loop | None = None

    def _train(self, dataset: Dataset) -> tuple[AveragedGenerator, dict[str, Any]]:
        config = self.config
        if len(dataset) < config.num_discriminators:
            raise DataError(f"Expected a record for each discriminator, got {len(dataset)} for num_discriminators="
                            f"{config.num_discriminators}. Use fewer discriminators or more data.")
        config = self.config = _calibrated(config)
        mechanism, noise = _mechanism(config, config.noise_multiplier), noise_source(config)
        self.folder.create()
        with exclusive(self.folder.path):
            identity = {"num_records": len(dataset),
                        "checksum": Fingerprint.of(dataset)}
            ledger = open_run(self.folder, config, identity, mechanism.dp_event())
            gan = GradientSanitizedGan(config, dataset, mechanism, noise)
            self._loop = Loop(self.folder, gan.student, gan.variables(), num_steps=config.num_steps,
                              checkpoint_minutes=self._options.checkpoint_minutes, callbacks=self._callbacks,
                              ledger=ledger, event=mechanism.dp_event())
            if not self._loop.has_snapshot:
                gan.warm_up(lambda: self._loop.stop_requested)
            self._loop.run(gan.train)
            _files.atomic_write(self.folder.private / "gradient_norms.json", json.dumps(gan.gradient_norms()) + "\n")
        facts, warning = _as_published(config, mechanism, ledger, noise)
        guarantee = Guarantee(
            event=mechanism.dp_event(), assumptions=_ASSUMPTIONS, released=_RELEASED + warning,
            facts={"num_discriminators": config.num_discriminators, "batch_size": config.batch_size,
                   "clip_norm": config.clip_norm, "noise_stddev": mechanism.noise_stddev,
                   "l2_sensitivity": mechanism.l2_sensitivity} | facts,
            seeds=f"seed {config.seed} for weights, latents, labels and batches, and seed {config.partition_seed} for "
                  "the partitions")
        return gan.student, make_statement(config, guarantee, ledger, self._loop.num_burnt,
                                           noise, len(dataset))

    def step_event(self) -> dp_accounting.DpEvent:
        return _mechanism(self.config, self.config.noise_multiplier).dp_event()

    def request_stop(self) -> None:
        if self._loop is None:  # Nothing that could be saved has begun.
            raise KeyboardInterrupt
        self._loop.stop_requested = True


class GradientSanitizedGan:
    """The generator, its discriminators, and the noise between them.

    Args:
      config: resolved settings.
      dataset: the records.
      mechanism: through which the generator learns.
      noise: its noise.
    """

    def __init__(self, config: GsWganConfig, dataset: Dataset, mechanism: SanitizedGradients, noise: NoiseSource):
        self._config, self._mechanism, self._noise = config, mechanism, noise
        self.student = SanitizedStudent(config)
        self.critics = Critics(config, dataset, usable_indices(
            partition_indices(len(dataset), config.num_discriminators, config.partition_seed), dataset.usable))
        self._norms = tf.Variable(tf.zeros([2, len(_NORMS)], tf.int64))  # The last count: not finite.

    def variables(self) -> list[tf.Variable]:
        """All there is to save."""
        return [*self.student.variables(), *self.critics.variables(), self._norms]

    def warm_up(self, stopped: Callable[[], bool]) -> None:
        """Trains every discriminator against the untrained generator: a function of its own records and public seeds.

        Raises:
          KeyboardInterrupt: `stopped()`; nothing was charged.
        """
        pool = self._pool(0)
        for index in range(self._config.num_discriminators):
            if stopped():
                raise KeyboardInterrupt
            self.critics.train(index, pool, self._config.warmup_steps, "warm-up")

    def train(self, step: int, charge: int) -> float:
        """One step, paid for by this charge. Returns the loss of the generator, a function of what was released."""
        steps, pool = self._config.critic_steps, self._pool(step)
        # In turns, which everybody may know. Partitions were dealt at random.
        self.critics.train((step - 1) % self._config.num_discriminators, pool, steps, "turn", step)
        latents, labels = self.student.inputs(step)
        images = self.student.images(latents, labels)
        picked = pick(self._config, charge)
        gradients = self.critics.answer(picked, pool, steps, images, labels, "answer", step)
        clipped = self._mechanism.clip(gradients).numpy()
        self._count(gradients.numpy(), clipped)
        return self.student.train(latents, labels, self._mechanism.privatize(clipped, self._noise, charge))

    def gradient_norms(self) -> dict[str, Any]:
        """How often gradients had which norm. PRIVATE: computed from the records, and from who was picked."""
        before, after = self._norms.numpy().tolist()
        clip_norm = self._config.clip_norm
        return {"note": "PRIVATE, never share: computed from the records without noise. counts[i] gradients had an l2 "
                        "norm from edges[i] on and below edges[i + 1], or more in the last one.",
                "clip_norm": clip_norm, "edges": (_NORMS[:-1] * clip_norm).tolist(), "before_clipping": before[:-1],
                "after_clipping": after[:-1], "not_finite": before[-1]}

    def _pool(self, step: int) -> tf.Tensor:
        """Images of all labels for the discriminators' steps, about as many as they look at: [K, Y, H, W, C]."""
        config = self._config
        return self.student.pool(step, -(-config.critic_steps * config.critic_batch_size // config.num_classes))

    def _count(self, gradients: np.ndarray, clipped: np.ndarray) -> None:
        """Adds to the private histogram."""
        gradients = gradients.astype(np.float64)
        for row, vectors in enumerate((gradients / self._config.clip_norm, clipped / 2.0**20)):
            norms = np.linalg.norm(vectors, axis=1)
            finite = np.isfinite(norms)
            counts = np.append(np.histogram(norms[finite], _NORMS)[0], np.sum(~finite))
            self._norms.assign(self._norms.numpy() + np.eye(2, dtype=np.int64)[:, row:row + 1] * counts)


class SanitizedStudent(Student):
    """A generator that learns from released gradients only."""

    def _train_step(self, latents, labels, direction):
        """Ascends the scores: `direction` [m, H, W, C] stands for their gradients."""
        with tf.GradientTape() as tape:
            images = self.generator([latents, labels], training=True)
            # Its gradient is the vector-Jacobian product of the noisy gradients (equation 11).
            loss = -tf.reduce_sum(images * tf.cast(direction, tf.float32)) / self._config.batch_size
        self.minimize(loss, tape)
        return loss


class Critics:
    """N critics, each with a partition of its own: weights, moments and step counts with a leading axis N.

    They are visited one at a time and share nothing.

    Args:
      config: resolved settings.
      dataset: the records.
      partitions: of their indices, N disjoint ones of any sizes.
    """

    def __init__(self, config: CriticConfig, dataset: Dataset, partitions: Sequence[np.ndarray]):
        self._config, self._dataset, self._partitions = config, dataset, partitions
        self._critic = WassersteinCritic(config.image_shape, config.num_classes, filters=config.critic_filters)
        weights = self._critic.initial(len(partitions), config.seed)
        self._num_weights = len(weights)
        # Weights, first moments, second moments, number of steps.
        self._state = [*map(tf.Variable, weights), *(tf.Variable(tf.zeros(w.shape)) for w in 2 * weights),
                       tf.Variable(tf.zeros([len(partitions)]))]
        self._training = CriticTraining(config, self._critic)
        self._gradients = tf.function(self._critic.image_gradients, autograph=False)

    def variables(self) -> list[tf.Variable]:
        """All there is to save; of each, row i is of critic i."""
        return list(self._state)

    def train(self, index: int, pool: tf.Tensor, steps: int, *purpose: str | int) -> None:
        """Optimizer steps of one critic.

        Args:
          index: of the critic.
          pool: public fakes, [K, Y, H, W, C].
          steps: how many.
          purpose: path of the random stream for its batches.
        """
        if not steps:
            return
        for variable, row in zip(self._state, self._trained(index, pool, steps, *purpose)):
            variable.scatter_update(tf.IndexedSlices(row[None], [index]))

    def answer(self, index: int, pool: tf.Tensor, steps: int, images: tf.Tensor, labels: tf.Tensor,
               *purpose: str | int) -> tf.Tensor:
        """Gradients [m, d] of the images' scores by one critic, trained further for this, without a trace.

        Args:
          index, pool, steps, purpose: as for `train`.
          images: float32 [m, H, W, C].
          labels: [m].
        """
        return self._image_gradients(self._trained(index, pool, steps, *purpose), images, labels)

    def gradients(self, index: int, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Gradients [m, d] of the images' scores by one critic as it is; arguments as for `answer`."""
        return self._image_gradients([tf.gather(variable, index) for variable in self._state], images, labels)

    def _image_gradients(self, state, images, labels) -> tf.Tensor:
        return tf.reshape(self._gradients(state[:self._num_weights], images, labels), [len(images), -1])

    def _trained(self, index, pool, steps, *purpose) -> list[tf.Tensor]:
        """The state of a critic after more steps."""
        shard = self._partitions[index]
        return self._training([tf.gather(variable, index) for variable in self._state], self._dataset.images[shard],
                              self._dataset.labels[shard], pool, steps, rng.stream(self._config.seed, index, *purpose))


class CriticTraining:
    """Optimizer steps of a critic, as a function from state to state: it keeps nothing.

    Args:
      config: resolved settings.
      critic: whose weights the states hold.
    """

    def __init__(self, config: CriticConfig, critic: WassersteinCritic):
        self._config, self._critic = config, critic
        self._advance = tf.function(self._advanced, reduce_retracing=True)  # Partitions of many sizes are one graph.

    def __call__(self, state: Sequence[tf.Tensor], images: np.ndarray, labels: np.ndarray, pool: tf.Tensor, steps: int,
                 stream: np.random.Generator | SecretStream) -> list[tf.Tensor]:
        """The state after more steps.

        Args:
          state: weights, first moments, second moments, number of steps.
          images, labels: all records that the critic may see, [n, H, W, C] and [n].
          pool: public fakes, [K, Y, H, W, C].
          steps: how many, at least 1.
          stream: decides what is in the batches.
        """
        size = min(self._config.critic_batch_size, len(images))
        batches = Batches(
            records=np.stack([stream.permutation(len(images))[:size] for _ in range(steps)]),
            fakes=stream.integers(0, len(pool), (steps, size)),
            mix=stream.random((steps, size), np.float32))
        return self._advance(list(state), to_unit(images), labels, pool, Batches(*map(tf.constant, batches)))

    def _advanced(self, state: Sequence[tf.Tensor], images, labels, pool, batches: Batches) -> list[tf.Tensor]:
        """One Adam step per row of the batches; all randomness is in them."""
        count = len(self._critic.shapes)
        for i in tf.range(tf.shape(batches.records)[0]):
            chosen = batches.records[i]
            real, real_labels = tf.gather(images, chosen), tf.gather(labels, chosen)
            fake = tf.gather_nd(pool, tf.stack([batches.fakes[i], real_labels], 1))
            weights = state[:count]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(weights)
                loss = self._critic.loss(weights, real, fake, real_labels, batches.mix[i],
                                         self._config.gradient_penalty)
            state = adam(self._config, state, tape.gradient(loss, weights))
        return state


def adam(config: CriticConfig, state: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """One step of Adam (Kingma and Ba 2015) on weights, first moments, second moments and the number of steps."""
    count, steps = len(gradients), state[-1] + 1.0
    rate = config.learning_rate * tf.sqrt(1.0 - config.beta_2**steps) / (1.0 - config.beta_1**steps)
    first = [config.beta_1 * m + (1 - config.beta_1) * g for m, g in zip(state[count:2 * count], gradients)]
    second = [config.beta_2 * v + (1 - config.beta_2) * tf.square(g)
              for v, g in zip(state[2 * count:3 * count], gradients)]
    weights = [w - rate * m / (tf.sqrt(v) + 1e-8) for w, m, v in zip(state[:count], first, second)]
    return [*weights, *first, *second, steps]


def pick(config: GsWganConfig, charge: int) -> int:
    """Who answers: uniform, and as secret as the noise. It has no seed, except in tests that say so."""
    if config.insecure_noise_seed is not None:
        return int(rng.stream(config.insecure_noise_seed, "pick", charge).integers(config.num_discriminators))
    return secrets.randbelow(config.num_discriminators)


def _mechanism(config: GsWganConfig, noise_multiplier: float) -> SanitizedGradients:
    return SanitizedGradients(clip_norm=config.clip_norm, noise_multiplier=noise_multiplier,
                              num_images=config.batch_size, num_discriminators=config.num_discriminators)


def _calibrated(config: GsWganConfig) -> GsWganConfig:
    """With the noise that the budget asks for over all steps, where none is given."""
    if config.noise_multiplier is not None:
        return config
    multiplier = accounting.calibrate(
        lambda multiplier: _mechanism(config, multiplier).dp_event(),
        config.num_steps, config.epsilon, config.delta, config.accountant, precision=1e-6)
    return config.replace(noise_multiplier=multiplier)


def _as_published(config: GsWganConfig, mechanism: SanitizedGradients, ledger: PrivacyLedger, noise: NoiseSource
                  ) -> tuple[dict[str, Any], str]:
    """What the paper's accounting would claim, as a fact and as text beside what holds; nothing of a run that is not
    private, to which no epsilon applies."""
    if not noise.is_secure:
        return {"invalid_epsilon_as_published": None}, ""
    invalid = accounting.epsilon(mechanism.event_as_published(), ledger.num_charges, config.delta, "rdp")
    text = _ACCOUNTING.format(batch_size=config.batch_size, invalid=round_up(invalid), honest=round_up(ledger.spent()),
                              accountant=config.accountant)
    return {"invalid_epsilon_as_published": invalid}, text
