"""What tests of methods share."""

import pytest

from datalens_tf.methods import base


@pytest.fixture(scope="package", autouse=True)
def few_samples():
    """Finished runs ship 100 samples rather than 10,000, which take longer than the rest of a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "NUM_SHIPPED_SAMPLES", 100)
        yield
