import math

import numpy as np
import pytest

from datalens_tf import _validate
from datalens_tf.errors import InvalidArgumentError


def message(check, *args, **kwargs):
    with pytest.raises(InvalidArgumentError) as error:
        check(*args, **kwargs)
    return str(error.value)


def test_messages_name_value_and_condition():
    assert message(_validate.require, False, "k", 5, "<= 4") == "Expected k=5 <= 4."
    assert message(_validate.positive, "epsilon", 0.0) == "Expected epsilon=0.0 > 0."
    assert message(_validate.integer, "n", 2, at_least=3) == "Expected n=2 >= 3."
    assert message(_validate.between, "p", 1, 0, 1, open_high=True) == "Expected p=1 in [0, 1)."
    assert message(_validate.between, "p", 0, 0, 1, open_low=True) == "Expected p=0 in (0, 1]."
    assert message(_validate.one_of, "split", "dev", ("train", "test")) == (
        "Expected split='dev' to be one of train, test.")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, True, 1j, [1]])
def test_only_finite_numbers_are_real(value):
    for check in (_validate.real, _validate.positive):
        assert "to be a finite number" in message(check, "x", value)
    assert "x=" in message(_validate.between, "x", value, -1e300, 1e300)


@pytest.mark.parametrize("value", [1.0, "1", None, True, math.nan])
def test_only_integers_are_integers(value):
    assert "to be an integer" in message(_validate.integer, "n", value)


def test_numpy_scalars_pass():
    _validate.integer("n", np.int64(3), at_least=3)
    _validate.positive("x", np.float32(0.5))


def test_closed_ends_are_included_and_open_ends_are_not():
    for value in (0, 0.5, 1):
        _validate.between("p", value, 0, 1)
    _validate.between("p", 0.5, 0, 1, open_low=True, open_high=True)
    for value, ends in ((0, {"open_low": True}), (1, {"open_high": True}), (-1e-9, {}), (1 + 1e-9, {})):
        message(_validate.between, "p", value, 0, 1, **ends)


def test_one_of_takes_each_choice():
    for choice in ("a", "b"):
        _validate.one_of("x", choice, ("a", "b"))
