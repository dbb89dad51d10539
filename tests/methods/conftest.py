"""What tests of methods share: their generators are exported with no more signatures than runs themselves use."""

import pytest


@pytest.fixture(scope="package", autouse=True)
def few_signatures():
    """A signature takes longer to export than most of these tests' training; those of tests/serving are of them all."""
    from datalens_tf.serving import signatures

    servable, used = signatures.servable, {"serving_default", "sample", "from_latents", "looking"}

    def few(*args):
        module, functions = servable(*args)
        return module, {name: function for name, function in functions.items() if name in used}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signatures, "servable", few)
        yield
