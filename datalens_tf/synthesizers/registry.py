"""Synthesizers by the name that `--method` takes."""

import importlib

from datalens_tf import _validate
from datalens_tf.synthesizers.base import RunSynthesizer

# Each is loaded when it is asked for.
_CLASSES = {
    "d2pfed": "datalens_tf.synthesizers.d2pfed.D2PFedTeachers",
    "datalens": "datalens_tf.synthesizers.datalens.DataLens",
    "datalens_plus": "datalens_tf.synthesizers.datalens_plus.DataLensPlus",
    "dcgan": "datalens_tf.synthesizers.dcgan.Dcgan",
    "dp_cgan": "datalens_tf.synthesizers.dp_gan.DpCgan",
    "dp_gan": "datalens_tf.synthesizers.dp_gan.DpGan",
    "dp_merf": "datalens_tf.synthesizers.dp_merf.DpMerf",
    "fed_avg_gan": "datalens_tf.synthesizers.fed_avg_gan.FedAvgGan",
    "fed_gs_wgan": "datalens_tf.synthesizers.fed_gs_wgan.FedGsWgan",
    "fetchsgd": "datalens_tf.synthesizers.fetchsgd.FetchSgdTeachers",
    "g_pate": "datalens_tf.synthesizers.g_pate.GPate",
    "gs_wgan": "datalens_tf.synthesizers.gs_wgan.GsWgan",
    "pate_cgan": "datalens_tf.synthesizers.pate_cgan.PateCgan",
    "pate_gan": "datalens_tf.synthesizers.pate_gan.PateGan",
}


def synthesizer(method: str) -> type[RunSynthesizer]:
    """The class for a method; raises InvalidArgumentError for an unknown one."""
    _validate.one_of("method", method, sorted(_CLASSES))
    module, _, name = _CLASSES[method].rpartition(".")
    return getattr(importlib.import_module(module), name)
