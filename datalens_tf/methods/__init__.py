"""All methods' settings, by name."""

from typing import Mapping

from datalens_tf import _files, _validate
from datalens_tf.config import DataLensConfig, MethodConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.critics import CriticConfig, FedAvgGanConfig, FedGsWganConfig, GsWganConfig
from datalens_tf.methods.discriminators import DcganConfig, DpCganConfig, DpGanConfig
from datalens_tf.methods.embeddings import DataLensPlusConfig, DpMerfConfig
from datalens_tf.methods.teachers import (
    D2PFedConfig, FetchSgdConfig, GPateConfig, PateCganConfig, PateConfig, PateGanConfig)

CONFIGS: dict[str, type[MethodConfig]] = {
    name: kind for kind in (
        D2PFedConfig, DataLensConfig, DataLensPlusConfig, DcganConfig, DpCganConfig, DpGanConfig, DpMerfConfig,
        FedAvgGanConfig, FedGsWganConfig, FetchSgdConfig, GPateConfig, GsWganConfig, PateCganConfig, PateGanConfig)
    for name in kind.METHODS}


def config_class(method: str) -> type[MethodConfig]:
    """The settings of a method; raises InvalidArgumentError for an unknown one."""
    _validate.one_of("method", method, sorted(CONFIGS))
    return CONFIGS[method]


def config_from_json(text: str) -> MethodConfig:
    """Settings of whatever method from the text of a `config.json`; raises InvalidArgumentError on anything else."""
    try:
        fields = _files.parse_json(text)
    except ValueError as error:
        raise InvalidArgumentError(f"Expected a JSON configuration: {error}.") from error
    if not isinstance(fields, Mapping):
        raise InvalidArgumentError("Expected a JSON configuration to be an object of settings.")
    method = fields.get("method", "datalens")
    _validate.require(isinstance(method, str), "method", method, "to be text")
    return config_class(method).from_json(text)
