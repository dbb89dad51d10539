"""Differentially private image generators: train, state the guarantee, export, sample."""

import importlib
import importlib.metadata
import os
import sys
from typing import Any

from datalens_tf import _quiet_import

__version__ = "0.1.0"

# TensorFlow reads this variable when it is first imported. Its log lines are about itself, and hide ours.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_quiet_import.install()

# The networks are of Keras 2, which TensorFlow 2.15 has. From TensorFlow 2.16 on, Keras 2 is the package tf-keras, and
# tf.keras stands for this package if TF_USE_LEGACY_KERAS is set before tf.keras is first used. TensorFlow itself may be
# imported before or after that. TensorFlow 2.15 can use tf-keras, too, but its autograph takes tf-keras for the user's
# code, and rewrites it for half a minute in every first `fit`.
_KERAS = next((found.version for found in importlib.metadata.distributions(name="keras")), "none")
if _KERAS.split(".")[0] not in ("2", "none"):  # Where there is none, `datalens doctor` says so.
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    if vars(getattr(sys.modules.get("tensorflow"), "keras", sys)).get("__name__", "").startswith("keras._tf_keras"):
        raise ImportError("Expected tf.keras to be Keras 2, and it is in use as Keras 3: import datalens_tf before "
                          "tf.keras is first used, or set the environment variable TF_USE_LEGACY_KERAS=1.")

# Loaded on first use: TensorFlow takes seconds to import.
_LAZY = {
    "ClassifierConfig": "datalens_tf.classification.classifier_config",
    "DataLens": "datalens_tf.methods.datalens",
    "DataLensConfig": "datalens_tf.methods.datalens",
    "PerformanceOptions": "datalens_tf.options",
    "PRESETS": "datalens_tf.methods.datalens",
    "DataLensError": "datalens_tf.errors",
    "ImageGenerator": "datalens_tf.image_generator",
    "PrivateClassifier": "datalens_tf.classification.classifier",
    "Synthesizer": "datalens_tf.methods.base",
    "TopAgg": "datalens_tf.mechanisms.topagg",
    "TopAggLayer": "datalens_tf.mechanisms.topagg_layer",
    "fit": "datalens_tf.image_generator",
    "load": "datalens_tf.image_generator",
    "load_dataset": "datalens_tf.data.registry",
    "load_generator": "datalens_tf.serving.export",
    "methods": "datalens_tf",
}
__all__ = ["__version__"]
__all__ += list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _LAZY[name] == __name__:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
