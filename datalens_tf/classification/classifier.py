"""A classifier trained by DP-SGD with NormTopK: algorithm 4 of the DataLens paper.

Deviations from it:

- Batches are Poisson samples and are charged as such by privacy loss distributions; the paper has a moments accountant.
- The sum of gradients is divided by the expected size of a batch, which is public, never by the true one.
- Noise is exact and from the operating system (`mechanisms.gaussian_sum`). Sampling and dropout are as secret.
- Pixels are scaled to [0, 1] by a fixed rule; the example that the paper follows subtracts the mean of the data.
- The released weights are a moving average (De et al. 2022, "Unlocking High-Accuracy Differentially Private Image
  Classification through Scale"), which costs nothing. `--ema_decay 0` releases the last weights.
"""

import io
import json
import pathlib
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from datalens_tf import _files, _validate
from datalens_tf.accounting import verification
from datalens_tf.accounting.statement import Guarantee, make_statement
from datalens_tf.accounting.wording import render_text
from datalens_tf.classification import networks
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.config import numbered
from datalens_tf.data.datasets import UNIT, Dataset, as_dataset, sound, to_unit, usable_only, with_data
from datalens_tf.data.identity import identity_of
from datalens_tf.errors import CheckpointError, TrainingDivergedError
from datalens_tf.mechanisms.noise import NoiseSource, SecretStream, noise_source, poisson_sample, secret_stream
from datalens_tf.mechanisms.norm_topk import NormTopKSum
from datalens_tf.models.per_example import averages
from datalens_tf.serving import saving
from datalens_tf.training.callbacks import Callback, Stage
from datalens_tf.training.loop import Interruptible, Loop
from datalens_tf.training.progress import described
from datalens_tf.training.results import make_results_folder, results_folder
from datalens_tf.training.run_folder import RunFolder, opened_any
from datalens_tf.training.sampled import SampledSums

_ASSUMPTIONS = (
    "Sensitivity: one record's gradient, of all weights together, is clipped to the l2 norm {clip_norm:g}, and of that "
    "the largest coordinates are kept, with at most {top_k_norm:g} of its squared norm, before it is summed, whatever "
    "the record is; its presence changes the sum by at most {record_norm:.6g}. Noise multipliers are "
    "relative to this norm.",
    "Sampling: every record is in a step's batch with probability {sampling_probability:.6g}, independently of all "
    "others and of other steps, by a draw that nobody sees (Poisson sampling).",
    "Steps are composed adaptively: later steps may depend on everything released before.",
    "Public: the settings, {number_of_records}, from which the sampling probability was computed, the list of classes, "
    "the image shape, and that pixels are scaled by a fixed rule. Models that training started from, and feature "
    "extractors, were made without these records.",
    "Noise: {noise_source}. {noise_caveat}",
)
_RELEASED = (
    "The classifier's noisy gradients: {num_charges} steps on batches of {batch_size} records on average, each "
    "record's gradient clipped and compressed to an l2 norm of at most {record_norm:.6g}, with Gaussian noise of "
    "standard deviation {noise_stddev:.6g} on every coordinate of their sum. The classifier learned from these alone. "
    "{num_burnt_charges} of the steps were lost in interruptions.")
_ACCURACY_NOTE = "Measured on real test records: epsilon does not cover this number."
_CHUNK_NUMBERS = 2**22  # of gradients in memory at once
_LARGEST_CHUNK = 64


class ClassifierFolder(RunFolder):
    """Names of the files of a classifier's run."""

    def __init__(self, path: _files.PathLike):
        super().__init__(path)
        self.classifier = self.path / "classifier.keras"
        self.saved_model = self.path / "saved_model"
        self.accuracy = results_folder(self.path) / "accuracy.json"
        self.sealed += (self.classifier, self.saved_model)


class PrivateClassifier(Interruptible):
    """Trains a classifier in a run folder, or continues there.

    Args:
      config: settings; `fit` fills in those that data and budget decide.
      run_dir: the run folder; a temporary one, kept until the process ends, if None.
      model: model to train instead of `config.network` or `config.model`, from the weights that it has. It maps images
        in [0, 1], or the output of `features`, to one number per class: logits, unless a softmax comes last. It may be
        compiled or not, and is trained in place. Its layers are those of `allowed_layers.TRAINED`.
      features: feature extractor to use instead of `config.features`; it is not trained, and runs as at prediction. Its
        layers are those of `allowed_layers.EXTRACTORS`.
      callbacks: told about training.
      checkpoint_minutes: minutes between snapshots, at most.

    Raises:
      InvalidArgumentError: the settings or models are refused.

    Example:
      A real run has hundreds of steps, and noise that is computed from the budget.

      >>> import tensorflow as tf
      >>> from datalens_tf import ClassifierConfig, PrivateClassifier, load_dataset
      >>> digits, test = load_dataset("digits"), load_dataset("digits", split="test")
      >>> config = ClassifierConfig(epsilon=10.0, noise_multiplier=5.0, num_steps=2, batch_size=100, accountant="rdp")
      >>> model = tf.keras.Sequential([tf.keras.Input((8, 8, 1)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
      >>> classifier = PrivateClassifier(config, model=model).fit(digits.images, digits.labels)
      >>> classifier.predict(test.images).shape
      (359, 10)
      >>> classifier.privacy_statement()["epsilon"] <= 10
      True
    """

    def __init__(self, config: ClassifierConfig | None = None, *, run_dir: _files.PathLike | None = None,
                 model: tf.keras.Model | None = None, features: tf.keras.Model | None = None,
                 callbacks: Sequence[Callback] = (), checkpoint_minutes: float = 2.0):
        if run_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="datalens-")
            run_dir = self._temporary.name
        self.folder = ClassifierFolder(run_dir)
        self.config = ClassifierConfig() if config is None else config
        _validate.require(model is None or self.config.model is None, "config.model", self.config.model,
                          "to be None where a model is given")
        _validate.require(features is None or self.config.features is None, "config.features", self.config.features,
                          "to be None where features are given")
        self._model, self._features = model, features
        self._callbacks, self._checkpoint_minutes = callbacks, checkpoint_minutes

    def fit(self, images: NDArray[Any], labels: NDArray[Any], *, num_classes: int | None = None,
            units: NDArray[Any] | None = None) -> "PrivateClassifier":
        """Trains on images uint8 or float in [0, 1], [n, H, W, C], with integer labels [n]; returns itself.

        Args:
          images, labels: the sensitive records.
          num_classes: number of classes Y, declared to be public: records with other labels keep their place and
            contribute nothing. By default those of the settings, else the largest label plus one, which is read from
            private labels and then taken to be public.
          units: integers or text [n], the unit of each record, a patient for example. All records of a unit are
            protected together. By default each record is a unit of its own.
        """
        return self.fit_dataset(as_dataset(images, labels, classes=numbered(num_classes) or self.config.classes,
                                           units=units, unit=self.config.unit or UNIT))

    def fit_dataset(self, dataset: Dataset) -> "PrivateClassifier":
        """`fit` for a checked data set; continues an interrupted run of the same settings and records.

        Raises:
          TrainingInterrupted: after `request_stop`.
        """
        dataset = sound(dataset)
        config = with_data(self.config, dataset)
        model, features = self._networks(config)
        digests = {"model_digest": None if self._model is None and config.model is None else networks.digest(model),
                   "features_digest": None if features is None else networks.digest(features)}
        config = self.config = config.replace(**digests).resolved(config.known_records(dataset.num_units))
        # The sampling probability is that of all records, or of the public bound on them.
        training = self.learner_class()(config, usable_only(dataset), model, features, noise_source(config))
        event = config.step_event()
        for callback in self._callbacks:
            callback.on_plan(described(dataset, config.adjacency, dataset.num_units), [
                Stage("load"), Stage("train", charged=event is not None), Stage("report", 100.0)])
        with opened_any(self.folder, config, identity_of(dataset), event) as ledger:
            self._stop_requested = False
            loop = Loop(self.folder, None, training.variables(),
                        num_steps=_validate.known("num_steps", config.num_steps),
                        checkpoint_minutes=self._checkpoint_minutes, callbacks=self._callbacks, ledger=ledger,
                        event=event, stopped=self._stopped)
            loop.run(training.train)
            training.release()
            for callback in self._callbacks:
                callback.on_stage("report")
            statement = make_statement(config, _guarantee(config), ledger, loop.num_burnt, training.noise,
                                       dataset.num_units)
            self._write(model, features, statement | {"num_steps": loop.done})
        return self

    def predict(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Probabilities of the classes, float32 [n, Y], of images uint8 or float in [0, 1], [n, H, W, C]."""
        if not self.folder.classifier.exists():
            raise CheckpointError(f"{self.folder.path} holds no classifier: train to the end first.")
        model = tf.keras.models.load_model(self.folder.classifier, compile=False)
        return _in_batches(model, images)

    def evaluate(self, test: Dataset) -> dict[str, Any]:
        """Accuracy on real test records, of the last step; written to `private/evaluation/accuracy.json`."""
        found = {"dataset": test.name, "num_test": len(test),
                 "accuracy": float(np.mean(np.argmax(self.predict(test.images), axis=1) == test.labels)),
                 "num_steps": self.privacy_statement()["num_steps"], "privacy_note": _ACCURACY_NOTE}
        make_results_folder(self.folder.path)
        _files.atomic_write(self.folder.accuracy, json.dumps(found, indent=2) + "\n")
        return found

    def privacy_statement(self) -> dict[str, Any]:
        """Privacy statement, a JSON-able dictionary (`privacy.json` of the run folder).

        Raises:
          CheckpointError: there is none, as training has not ended.
          LedgerError: it does not follow from the run's ledger.
        """
        if not self.folder.statement_json.exists():
            raise CheckpointError(f"{self.folder.path} holds no privacy statement: train to the end first.")
        return verification.run_statement(self.folder.path)

    @classmethod
    def learner_class(cls) -> "type[DpSgd]":
        """Class that trains, by sums over sampled records."""
        return DpSgd

    def _networks(self, config: ClassifierConfig) -> tuple[tf.keras.Model, tf.keras.Model | None]:
        """The model to train and the features, or None for none; checked."""
        features = self._features
        if features is None and config.features is not None:
            features = networks.load_keras(config.features, "features")
        input_shape, num_classes = config.data.image_shape, config.data.num_classes
        if features is not None:
            networks.check_features(features, input_shape)
            input_shape = tuple(features.output_shape[1:])
        model = self._model
        if model is None and config.model is not None:
            model = networks.load_keras(config.model, "model")
        if model is None:
            model = networks.new_network(config.network if features is None else "linear", input_shape,
                                         num_classes, config.seed)
        networks.check_classifier(model, input_shape, num_classes)
        return model, features

    def _write(self, model: tf.keras.Model, features: tf.keras.Model | None, statement: dict[str, Any]) -> None:
        """Writes the classifier with its statement."""
        released = tf.keras.Sequential([
            tf.keras.layers.Input(self.config.data.image_shape), *([] if features is None else [features]), model,
            *([] if networks.puts_out_probabilities(model) else [tf.keras.layers.Softmax()])])
        aside = self.folder.path / "private" / "classifier.keras"
        released.save(aside)
        _files.atomic_write(self.folder.classifier, _timeless(aside))
        aside.unlink()
        _save_for_serving(released, self.folder.saved_model / "1", self.config.data.image_shape)
        _files.atomic_write(self.folder.statement_text, render_text(statement))
        _files.atomic_write(self.folder.statement_json, json.dumps(statement, indent=2) + "\n")
        self.folder.seal()


class DpSgd(SampledSums):
    """The training itself.

    Args:
      config: resolved settings.
      dataset: the records.
      model: what is trained.
      features: extractor through which the model sees the images, or None.
      noise: of the releases.
    """

    mechanism: NormTopKSum

    def __init__(self, config: ClassifierConfig, dataset: Dataset, model: tf.keras.Model,
                 features: tf.keras.Model | None, noise: NoiseSource):
        self._config, self.noise, self._labels, self._units = config, noise, dataset.labels, dataset.units
        self._unchanged = networks.Unchanged(model, features)
        self._chunk = int(np.clip(_CHUNK_NUMBERS // networks.count_parameters(model), 1, _LARGEST_CHUNK))
        self._inputs = dataset.images if features is None else networks.extract(features, dataset.images)
        self._gradients = networks.PerExampleGradients(model, (self._chunk, *self._inputs.shape[1:]))
        self._weights = model.trainable_weights
        self._average = [tf.Variable(weight) for weight in self._weights]
        self._unchanged.check()  # Nothing was charged yet.
        self.mechanism = config.mechanism()

    def variables(self) -> list[tf.Variable]:
        """All there is to save."""
        return [*self._weights, *self._average]

    def release(self) -> None:
        """Gives the model the averaged weights.

        Raises:
          InvalidArgumentError: other weights changed.
        """
        self._unchanged.check()
        for weight, average in zip(self._weights, self._average):
            weight.assign(average)

    def train(self, step: int, charge: int = 0) -> float:
        """One charged step; returns the length of the noisy gradient, which is released anyway."""
        gradient = self.noisy_sum(step, charge) / self._config.batch_size
        rate = learning_rate(self._config, step)
        for weight, part in zip(self._weights, self._gradients.unflatten(tf.constant(gradient, tf.float32))):
            weight.assign_sub(rate * part)
            if not np.isfinite(weight.numpy()).all():
                raise TrainingDivergedError(f"Expected finite weights after step {step}; lower learning_rate.")
        # The average warms up with the number of steps, so that the initial weights are soon forgotten.
        decay = min(self._config.ema_decay, step / (step + 4))
        for weight, average in zip(self._weights, self._average):
            average.assign(decay * average + (1 - decay) * weight)
        return float(np.linalg.norm(gradient))

    @property
    def num_parameters(self) -> int:
        return self._gradients.num_parameters

    def bounded(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        found = np.zeros(vectors.shape)
        for row, vector in zip(found, vectors):
            positions, units = self.mechanism.compress(vector)
            row[positions] = units
        return found

    def bounded_sum(self, chosen: NDArray[np.int64], step: int) -> NDArray[np.float64]:
        return self.compressed_sum(chosen, secret_stream(self._config, "dropout", step))

    def compressed_sum(self, chosen: NDArray[np.int64], stream: np.random.Generator | SecretStream
                       ) -> NDArray[np.float64]:
        """Sum of the clipped, compressed gradients of these records, in units of the mechanism's grid: float64 [d].

        With units, each unit's average gradient is clipped and compressed.

        Args:
          chosen: indices of n records; with units, all records of some units, one unit after the other.
          stream: secret, for dropout.
        """
        total, gradients = np.zeros(self._gradients.num_parameters), self._gradients_of(chosen, stream)
        if self._units is not None:
            gradients = averages(gradients, self._units.of[chosen])
        for gradient in gradients:
            positions, units = self.mechanism.compress(gradient)
            total[positions] += units
        return total

    def _gradients_of(self, chosen: NDArray[np.int64], stream: np.random.Generator | SecretStream
                      ) -> Iterator[NDArray[np.float32]]:
        """The gradient of each record."""
        for start in range(0, len(chosen), self._chunk):
            indices = chosen[start:start + self._chunk]
            filled = np.resize(indices, self._chunk)  # One shape, one graph; records beyond the end are left out.
            gradients = self._gradients(to_unit(self._inputs[filled]), self._labels[filled],
                                        *self._gradients.masks(stream, self._chunk))
            yield from gradients[:len(indices)]

    def sampled(self, step: int) -> NDArray[np.int64]:
        probability = _validate.known("sampling_probability", self._config.sampling_probability)
        count = len(self._labels) if self._units is None else self._units.count
        chosen = poisson_sample(self._config, count, probability, "sampling", step)
        return chosen if self._units is None else self._units.records(chosen)


def learning_rate(config: ClassifierConfig, step: int) -> float:
    """Learning rate of a step, from 1 to num_steps."""
    num_steps = _validate.known("num_steps", config.num_steps)
    falling = config.learning_rate_decay * num_steps
    return config.learning_rate * min(1.0, (num_steps - step + 1) / falling if falling else 1.0)


def _guarantee(config: ClassifierConfig) -> Guarantee:
    """The method's account of its privacy, in addition to the settings."""
    facts = {name: getattr(config, name)
             for name in ("batch_size", "sampling_probability", "clip_norm", "top_k_norm", "top_k_dimensions")}
    facts |= {name: getattr(config.mechanism(), name) for name in ("record_norm", "noise_stddev")}
    return Guarantee(
        event=config.step_event(), adjacency=config.adjacency if config.epsilon is not None else "none",
        facts=facts, assumptions=_ASSUMPTIONS,
        released=_RELEASED if config.epsilon is not None else
        f"A classifier that was trained for {config.num_steps} steps without noise.",
        seeds=f"seed {config.seed} for the initial weights", product="classifier")


def _in_batches(model: tf.keras.Model, images: NDArray[Any]) -> NDArray[np.float32]:
    """Outputs of a model at prediction, float32 [n, ...]."""
    return np.concatenate([model(to_unit(images[start:start + 500]), training=False).numpy()
                           for start in range(0, len(images), 500)])


def _timeless(path: pathlib.Path) -> bytes:
    """Content of a Keras file without its time.

    The time tells how long training took, and so how large the secret samples were.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(path) as saved, zipfile.ZipFile(content, "w") as written:
        for name in saved.namelist():
            data = saved.read(name)
            if name == "metadata.json":
                data = json.dumps(json.loads(data) | {"date_saved": "1980-01-01@00:00:00"}).encode()
            written.writestr(zipfile.ZipInfo(name), data)
    return content.getvalue()


def _save_for_serving(model: tf.keras.Model, folder: pathlib.Path, image_shape: tuple[int, int, int]) -> None:
    """Writes a SavedModel that TensorFlow Serving reads."""
    def classify(images: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = model(images, training=False)
        return {"probabilities": probabilities, "labels": tf.argmax(probabilities, axis=1)}

    module = tf.Module()
    module.model = model  # Its weights are saved.
    module.classify = tf.function(classify, [tf.TensorSpec([None, *image_shape], tf.float32, name="images")])
    with _files.clear_os_errors(folder):
        saving.save(module, folder, module.classify)
