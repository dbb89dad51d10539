"""Differentially private image generators: train, state the guarantee, export, sample."""

import importlib
import os
from typing import Any

__version__ = "0.1.0"

# TensorFlow reads it when it is first imported: its log lines are about itself, and hide ours.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Loaded on first use: TensorFlow takes seconds to import.
_LAZY = {
    "ClassifierConfig": "datalens_tf.classification.classifier_config",
    "DataLens": "datalens_tf.methods.datalens",
    "DataLensConfig": "datalens_tf.methods.datalens",
    "PerformanceOptions": "datalens_tf.config",
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
