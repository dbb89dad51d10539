import dataclasses
import json
import math
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datalens_tf.accounting import accountants
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.config import ACCOUNTANTS, config_digest
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataLensError, InvalidArgumentError
from datalens_tf.mechanisms.topagg import QUANTIZATIONS
from datalens_tf.methods.datalens import PRESETS, DataLensConfig
from datalens_tf.methods.registry import config_classes, preset

# The authors' commands: N, m, k, sigma, beta, c, z.
PUBLISHED = {
    ("mnist", 1.0): (4000, 15, 200, 5000, 0.7, 1e-5, 50),
    ("fashion_mnist", 1.0): (4000, 15, 200, 5000, 0.9, 1e-5, 50),
    ("celeba_gender", 1.0): (6000, 27, 700, 9000, 0.85, 1e-5, 100),
    ("celeba_hair", 1.0): (8000, 15, 700, 9000, 0.9, 1e-5, 100),
    ("mnist", 10.0): (4000, 15, 300, 800, 0.2, 1e-5, 50),
    ("fashion_mnist", 10.0): (4000, 15, 350, 1000, 0.27, 1e-5, 64),
    ("celeba_gender", 10.0): (6000, 27, 500, 700, 0.12, None, 100),
    ("celeba_hair", 10.0): (4000, 30, 500, 700, 0.25, None, 100),
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_presets_are_the_published_settings(key):
    config = PRESETS[key]
    assert PUBLISHED[key] == (config.num_teachers, config.batch_size, config.top_k, config.noise_stddev,
                              config.vote_threshold, config.clip, config.latent_dim)
    assert (config.dataset, config.epsilon, config.delta, config.latent_distribution) == (*key, 1e-5, "uniform")


@pytest.mark.parametrize("key,classic,exact", [(("mnist", 1.0), 86, 149), (("mnist", 10.0), 109, 142)])
def test_presets_pay_for_the_known_number_of_steps(key, classic, exact):
    event = PRESETS[key].mechanism().dp_event(PRESETS[key].batch_size)
    assert accountants.max_steps(event, key[1], 1e-5, "classic_rdp") == classic
    assert accountants.max_steps(event, key[1], 1e-5, "gdp") == exact


@pytest.mark.parametrize("key", sorted(set(PRESETS) - set(PUBLISHED)))
def test_presets_of_our_own_pay_for_enough_steps(key):
    event = PRESETS[key].mechanism().dp_event(PRESETS[key].batch_size)
    assert accountants.max_steps(event, key[1], 1e-5, "gdp") >= 30


def test_the_digits_preset_fits_the_digits():
    config, dataset = preset("digits", 10.0), load_dataset("digits")
    assert config.num_teachers <= len(dataset)
    config.replace(image_shape=dataset.image_shape, num_classes=dataset.num_classes)
    event = config.mechanism().dp_event(config.batch_size)
    steps = accountants.max_steps(event, 10.0, config.delta, config.accountant)
    assert steps >= 20 and accountants.epsilon(event, steps, config.delta, "gdp") <= 10.0


@pytest.mark.parametrize("epsilon,nearest", [(0.2, 1.0), (1.0, 1.0), (3.0, 1.0), (3.3, 10.0), (50, 10.0)])
def test_another_budget_takes_the_nearest_published_settings(epsilon, nearest):
    config = preset("mnist", epsilon)
    assert config.epsilon == epsilon and config.replace(epsilon=nearest) == PRESETS["mnist", nearest]


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1"])
def test_preset_for_no_budget(epsilon):
    with pytest.raises(InvalidArgumentError, match="epsilon="):
        preset("mnist", epsilon)


def test_unknown_preset():
    with pytest.raises(InvalidArgumentError, match="preset='nope' to be one of .*mnist"):
        preset("nope")


def test_settings_cannot_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DataLensConfig().epsilon = 2.0


@pytest.mark.parametrize("name,value", [
    ("method", "other"), ("image_shape", (28, 28)), ("image_shape", (28, 3, 1)), ("image_shape", (0, 4, 1)),
    ("image_shape", (8.0, 8, 1)), ("num_classes", 0), ("num_teachers", 0), ("num_teachers", 2.0), ("batch_size", 0),
    ("top_k", 0), ("top_k", True), ("clip", 0.0), ("clip", -1.0), ("noise_stddev", 0.0), ("noise_stddev", -1.0),
    ("noise_stddev", math.nan), ("noise_stddev", math.inf), ("noise_stddev", "5"), ("quantization", "none"),
    ("vote_threshold", -0.1), ("vote_threshold", 1.1), ("step_size", 0.0), ("latent_dim", 0),
    ("latent_distribution", "beta"),
    ("warmup_teacher_steps", -1), ("teacher_steps", 0), ("precision", "float8"), ("learning_rate", 0.0),
    ("beta_1", 1.0), ("beta_2", 0.999), ("student_beta_2", 1.0), ("ema_decay", 1.0), ("epsilon", 0.0),
    ("epsilon", math.nan), ("delta", 0.0), ("delta", 1.0), ("accountant", "hope"), ("num_steps", 0),
    ("partition_seed", -1), ("seed", None), ("insecure_noise_seed", -1),
])
def test_values_outside_their_domain_are_named(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"Expected {name}="):
        DataLensConfig(**{name: value})


def test_more_coordinates_than_an_image_has():
    with pytest.raises(InvalidArgumentError, match="top_k=65 <= 64, the numbers in one image"):
        DataLensConfig(image_shape=(8, 8, 1), top_k=65)
    DataLensConfig(image_shape=(8, 8, 1), top_k=64)


def test_replace_checks_again_and_knows_its_fields():
    with pytest.raises(InvalidArgumentError, match="epsilon="):
        DataLensConfig().replace(epsilon=-1.0)
    with pytest.raises(InvalidArgumentError, match="sigma"):
        DataLensConfig().replace(sigma=1.0)


configs = st.builds(
    DataLensConfig, image_shape=st.sampled_from([None, (28, 28, 1), (64, 64, 3)]),
    num_classes=st.sampled_from([None, 10]), dataset=st.text(max_size=20),
    top_k=st.none() | st.integers(1, 784), vote_threshold=st.none() | st.floats(0, 1),
    quantization=st.sampled_from(QUANTIZATIONS),
    clip=st.none() | st.floats(1e-9, 10),
    noise_stddev=st.floats(1e-3, 1e6), epsilon=st.floats(1e-3, 100), delta=st.floats(1e-12, 0.5),
    accountant=st.sampled_from(ACCOUNTANTS), num_steps=st.none() | st.integers(1, 10**6), seed=st.integers(0, 2**60))


@settings(deadline=None)
@given(config=configs)
def test_json_and_back(config):
    again = DataLensConfig.from_json(config.to_json())
    assert again == config and again.to_json() == config.to_json()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"sigma": 1}', '{"top_k": "many"}', '{"image_shape": 3}',
                                  '{"epsilon": NaN}', '{"image_shape": [8, 8, "1"]}', '{"delta": null}'])
def test_malformed_json(text):
    with pytest.raises(DataLensError):
        DataLensConfig.from_json(text)


def test_settings_from_before_noise_was_one_mean_floating_point():
    old = json.loads(DataLensConfig().to_json())
    del old["noise"]
    assert DataLensConfig.from_json(json.dumps(old)).noise == "gaussian"
    assert DataLensConfig.from_json(DataLensConfig().to_json()).noise == "rounded_gaussian"


def test_settings_from_before_variants_mean_the_papers_method():
    old = json.loads(DataLensConfig().to_json())
    del old["quantization"]
    assert DataLensConfig.from_json(json.dumps(old)) == DataLensConfig()
    new = DataLensConfig(quantization="sign", top_k=None, vote_threshold=None)
    assert DataLensConfig.from_json(new.to_json()) == new != DataLensConfig()


@pytest.mark.parametrize("classes", ["ab", ("a",), (), ("a", "a"), ("a", 1), ("a", ""), ("a", " b"), ("a", "b\n"),
                                     ("a", "x" * 201), tuple(map(str, range(10_001)))])
def test_classes_are_names(classes):
    with pytest.raises(InvalidArgumentError, match="classes="):
        DataLensConfig(classes=classes)


def test_settings_from_before_classes_could_be_declared_still_load():
    fields = json.loads(DataLensConfig(num_classes=3).to_json())
    assert fields.pop("classes") is None
    assert DataLensConfig.from_json(json.dumps(fields)) == DataLensConfig(num_classes=3)
    declared = DataLensConfig(classes=("a", "b"))
    assert DataLensConfig.from_json(declared.to_json()) == declared


def test_every_setting_changes_the_digest():
    base = DataLensConfig()
    changes = {"method": None, "adjacency": None, "dataset": "mnist",
               "image_shape": (28, 28, 1), "num_classes": 10, "clip": None,
               "classes": ("a", "b"), "unit": "patient", "picture_bits": 12,
               "latent_distribution": "normal", "precision": "mixed_bfloat16", "beta_2": 0.5, "accountant": "pld",
               "num_steps": 7, "insecure_noise_seed": 3, "output_contrast": 2.0, "output_choices": 2, "num_owners": 3,
               "owner_tolerance": 2, "noise": "gaussian", "quantization": "sign"}
    needed = {"num_owners": {"noise": "gaussian"}, "owner_tolerance": {"noise": "gaussian", "num_owners": 3}}
    digests = {config_digest(base.to_json())}
    for field in dataclasses.fields(base):
        value = getattr(base, field.name)
        new = changes[field.name] if field.name in changes else type(value)(value / 2 if value else 0.5 + (
            0.5 if isinstance(value, int) else 0))
        if new is not None or field.name == "clip":
            digests.add(config_digest(base.replace(**{field.name: new}, **needed.get(field.name, {})).to_json()))
    assert len(digests) == len(dataclasses.fields(base)) - 1  # `method`, `adjacency` have one value; and the base.


KINDS = {kind.__name__: kind for kind in (*config_classes().values(), ClassifierConfig, PateClassifierConfig)}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_absurd_numbers_are_refused_whatever_the_setting(kind):
    """Before anything is computed with them or allocated for them."""
    hints = typing.get_type_hints(KINDS[kind])
    names = [field.name for field in dataclasses.fields(KINDS[kind])
             if {int, float} & {hints[field.name], *typing.get_args(hints[field.name])}]
    assert len(names) > 10
    for name in names:
        for value in (2**200, 1e300, -1e300, *([5e-324] if name != "vote_threshold" else []),  # Of which 0 is one.
                      10**12 if "seed" not in name and "noise" not in name else 10**30):
            with pytest.raises(InvalidArgumentError) as caught:
                KINDS[kind](**{name: value})
            assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_generator_that_would_fill_the_memory_is_refused():
    with pytest.raises(InvalidArgumentError, match="generator_units=65536 to give the generator a layer of at most"):
        preset("mnist").replace(generator_units=65_536, image_shape=(28, 28, 1))
    for shape in ((2**40, 4, 1), (4096, 4096, 4)):
        with pytest.raises(InvalidArgumentError, match="image_shape=.* at most 4,194,304 numbers"):
            preset("mnist").replace(image_shape=shape)


def test_what_people_ask_for_is_no_absurd_number():
    DataLensConfig(epsilon=1e-3, delta=1e-30, noise_stddev=1e6, num_teachers=10**6, num_steps=10**6, seed=2**63 - 1)
