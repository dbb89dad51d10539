"""The study of votes: as many steps as the preset pays for, and the same price for every variant."""

import argparse

import pytest

SHAPE = (28, 28, 1)


def arguments(**others):
    return argparse.Namespace(**{"dataset": "mnist", "as_at": 1.0, "num_teachers": 400, "num_steps": None} | others)


@pytest.mark.parametrize("as_at", [1.0, 10.0])
def test_steps_are_those_that_the_preset_pays_for(study, as_at):
    config = study.settings("preset", 0, SHAPE, arguments(as_at=as_at))
    full = study.preset("mnist", as_at)
    affordable, more = (study.accountants.epsilon(study.release(full), steps, full.delta, full.accountant)
                        for steps in (config.num_steps, config.num_steps + 1))
    assert affordable <= as_at < more
    assert as_at != 1.0 or config.num_steps == 149
    assert config.noise_stddev == full.noise_stddev * 400 / full.num_teachers


def test_every_variant_costs_the_same_but_the_one_without_noise(study):
    found = {name: study.settings(name, 0, SHAPE, arguments()) for name in study.VARIANTS}
    assert {config.epsilon for name, config in found.items() if name != "little_noise"} == {found["preset"].epsilon}
    assert found["little_noise"].epsilon > 100 * found["preset"].epsilon
    assert {name for name, config in found.items() if config.num_steps == 3 * 149} == study.THREE_TIMES_THE_STEPS


def test_steps_can_be_given(study):
    assert study.settings("three_times_the_steps", 0, SHAPE, arguments(num_steps=5)).num_steps == 15
