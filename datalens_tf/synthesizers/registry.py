"""Synthesizers by the name that `--method` takes."""

from datalens_tf import _validate
from datalens_tf.synthesizers.base import Synthesizer
from datalens_tf.synthesizers.datalens import DataLens

SYNTHESIZERS: dict[str, type[Synthesizer]] = {"datalens": DataLens}


def synthesizer(method: str) -> type[Synthesizer]:
    """The class for a method; raises InvalidArgumentError for an unknown one."""
    _validate.one_of("method", method, sorted(SYNTHESIZERS))
    return SYNTHESIZERS[method]
