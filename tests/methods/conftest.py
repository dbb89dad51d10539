"""What tests of methods share: what takes longer than their training is left out where it is not the subject."""

import os
import pathlib
import types

import numpy as np
import pytest


@pytest.fixture(scope="package", autouse=True)
def few_signatures():
    """Generators are exported with no more signatures than runs themselves use; tests/serving is of them all."""
    from datalens_tf.serving import signatures

    servable, used = signatures.servable, {"serving_default", "sample", "from_latents", "looking"}

    def few(*args):
        module, functions = servable(*args)
        return module, {name: function for name, function in functions.items() if name in used}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signatures, "servable", few)
        yield


@pytest.fixture(name="unexported")
def fixture_unexported(monkeypatch):
    """Runs draw from the generators that they trained, which are not exported."""
    from datalens_tf.serving import export

    kept = {}

    def keep(generator, directory, *, latent_dim, num_classes, **_):
        def sample(labels, seed):
            latents = np.random.default_rng(seed).uniform(-1, 1, (len(labels), latent_dim)).astype(np.float32)
            images = generator([latents, labels.astype(np.int32)], training=False)
            return np.round(255 * np.asarray(images)).astype(np.uint8)

        kept[os.fspath(directory)] = types.SimpleNamespace(sample=sample, num_classes=num_classes)
        return pathlib.Path(directory)

    monkeypatch.setattr(export, "export_generator", keep)
    monkeypatch.setattr(export, "load_generator", lambda directory: kept[os.fspath(directory)])
