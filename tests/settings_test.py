"""Settings are declared once: what a subclass leaves out, its parents say."""

import dataclasses
import typing

import pytest

from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.registry import config_classes
from datalens_tf.options import PerformanceOptions
from datalens_tf.settings import Settings, at_least, between, declared, one_of, positive, setting

KINDS = [*config_classes().values(), ClassifierConfig, PateClassifierConfig, PerformanceOptions]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parent(Settings):
    GROUP: typing.ClassVar[str] = "parents"
    count: int = setting(3, "How many.", at_least(1))
    share: float | None = setting(0.5, "Which share.", between(0, 1, open_high=True), group="shares")
    rate: float = setting(1.0, "How fast.", positive)
    kind: str = setting("a", "What kind.", one_of("a", "b"))
    name: str = setting("x", "Which name.")
    flag: bool = setting(False, "Whether.")
    sizes: tuple[int, ...] = setting((1, 2), "Which sizes.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Child(Parent):
    GROUP: typing.ClassVar[str] = "children"
    count: int = 10
    share: float = setting(0.25, "The share of the child.")
    extra: int = setting(0, "More.", at_least(0))

    def _check(self):
        super()._check()
        if self.extra > self.count:
            raise InvalidArgumentError("more than there are")


@pytest.mark.parametrize("name, value, message", [
    ("count", 0, "Expected count=0 >= 1."), ("count", 1.5, "Expected count=1.5 to be an integer."),
    ("count", True, "Expected count=True to be an integer."), ("count", None, "Expected count=None to be an integer."),
    ("share", 1, r"Expected share=1 in \[0, 1\)."), ("share", "1", "Expected share='1' to be a finite number."),
    ("rate", 0, "Expected rate=0 > 0."), ("rate", float("nan"), "Expected rate=nan to be a finite number."),
    ("kind", "c", "Expected kind='c' to be one of a, b"), ("kind", None, "Expected kind=None to be one of a, b"),
    ("name", 3, "Expected name=3 to be text."), ("flag", 1, "Expected flag=1 to be true or false.")])
@pytest.mark.parametrize("cls", [Parent, Child])
def test_values_are_checked_by_their_types_and_their_own_checks(cls, name, value, message):
    with pytest.raises(InvalidArgumentError, match=message):
        cls(**{name: value})


def test_none_is_a_value_exactly_where_the_annotation_says_so():
    assert Parent(share=None).share is None
    with pytest.raises(InvalidArgumentError, match="Expected share=None to be a finite number"):
        Child(share=None)


def test_a_subclass_inherits_what_it_does_not_say():
    parent, child = declared(Parent), declared(Child)
    assert list(child) == [*parent, "extra"]  # The order of the JSON is the parent's.
    assert (child["count"].default, child["count"].help) == (10, "How many.")
    assert child["count"].check is parent["count"].check
    assert (child["share"].help, child["share"].check) == ("The share of the child.", parent["share"].check)
    assert [child[name].group for name in ("count", "share", "extra")] == ["parents", "shares", "children"]


def test_conditions_between_fields_come_last():
    with pytest.raises(InvalidArgumentError, match="more than there are"):
        Child(extra=11)
    with pytest.raises(InvalidArgumentError, match="extra=-1 >= 0"):
        Child(extra=-1, count=1).replace()


def test_json_and_back():
    config = Child(count=7, sizes=(4, 5))
    assert Child.from_json(config.to_json()) == config == Child(count=7, sizes=[4, 5])
    with pytest.raises(InvalidArgumentError, match="Expected settings of Child, got a_lot, unheard"):
        Child.from_json('{"unheard": 1, "a_lot": 2}')


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_is_explained_in_a_sentence(kind):
    for name, said in declared(kind).items():
        assert said.help[0].isupper() or said.help.startswith(("l2 ", "k ")), name
        assert said.help.endswith("."), name
        assert said.group != Settings.GROUP, name
