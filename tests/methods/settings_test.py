import json
import re

import pytest

from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.registry import config_class, config_classes, config_from_json
from datalens_tf.settings import declared


@pytest.mark.parametrize("method", sorted(config_classes()))
def test_settings_survive_json(method):
    config = config_class(method)(method=method, seed=7, delta=1e-6)
    assert config_from_json(config.to_json()) == config


@pytest.mark.parametrize("method", sorted(config_classes()))
def test_settings_of_another_method_are_refused(method):
    foreign = {field for kind in config_classes().values() for field in kind.__dataclass_fields__}
    foreign = sorted(foreign - set(config_class(method).__dataclass_fields__))
    assert foreign
    for field in foreign:
        text = json.dumps({**json.loads(config_class(method)(method=method).to_json()), field: 1})
        with pytest.raises(InvalidArgumentError, match=field):
            config_from_json(text)


def test_a_configuration_without_a_method_is_of_datalens():
    assert config_from_json("{}").method == "datalens"  # The first version wrote none.


@pytest.mark.parametrize("text, said", [
    ("{", "JSON"), ("[]", "an object"), ('{"method": "no_such"}', "no_such"), ('{"method": 3}', "to be text")])
def test_other_texts_are_refused(text, said):
    with pytest.raises(InvalidArgumentError, match=said):
        config_from_json(text)


@pytest.mark.parametrize("kind", [*config_classes().values(), ClassifierConfig, PateClassifierConfig],
                         ids=lambda kind: kind.__name__)
def test_every_method_says_on_which_data_its_constants_were_chosen(kind):
    """Of its own, not its parent's: a new method has other constants. It speaks of settings that there are."""
    assert {"CHOSEN", "CHOSEN_ON"} <= set(vars(kind)), "say for the statement on which data its constants were chosen"
    assert "MNIST" in kind.CHOSEN and kind.CHOSEN.endswith(".") and "mnist" in kind.CHOSEN_ON
    named = set(re.findall(r"\b[a-z0-9]+_[a-z0-9_]+\b", kind.CHOSEN)) - set(config_classes())
    assert not named - set(declared(kind))
