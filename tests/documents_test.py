"""What the documents name exists."""

import importlib
import importlib.util
import inspect
import math
import pathlib
import pkgutil
import re

import pytest
import scipy.optimize
import scipy.stats

import datalens_tf
from datalens_tf import cli
from datalens_tf.bounds.gdp import Gdp
from datalens_tf.methods.registry import methods

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("checkpoints/*.md")])


def test_every_named_test_exists():
    defined = set(re.findall(r"def (test_\w+)", "\n".join(path.read_text() for path in ROOT.glob("tests/**/*.py"))))
    named = re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 25 and not set(named) - defined


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_linked_file_exists(path):
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_named_script_exists(path):
    named = re.findall(r"run_scripts/[\w/]+\.(?:sh|py)", path.read_text())
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_named_flag_exists(path):
    """Each is of `datalens`, a script here, or `docker`, `ray`, `sha256sum`, `mkdocs` or `pytest`, which pages show."""
    scripts = "\n".join(script.read_text() for kind in ("py", "sh") for script in ROOT.glob(f"run_scripts/**/*.{kind}"))
    parsers = [*(cli.command_parser(name, []) for name in cli.COMMANDS),
               *(cli.command_parser("train", ["--method", method]) for method in methods())]
    known = {flag for parser in parsers for flag in parser._option_string_actions} | {"--version"}
    known |= set(re.findall(r'add_argument\("(--\w+)"', scripts)) | set(re.findall(r"== (--\w+)", scripts))
    known |= {"--address", "--resources", "--check", "--strict", "--collect-only", "--rm", "--no-index"}
    assert not sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text())) - known)


def test_what_epsilon_means_is_computed():
    """By the closed form for Gaussian releases: guesses by Dong, Roth and Su 2019, groups and releases by its mu."""
    priced, delta = Gdp(), 1e-5
    rows = [re.findall(r"[\d.]+", line) for line in (ROOT / "docs/explanation/epsilon.md").read_text().splitlines()
            if re.match(r"\| [\d.]+ \|", line)]
    assert len(rows) == 12
    for number, row in enumerate(rows):
        epsilon, *told = map(float, row)
        mu = scipy.optimize.brentq(lambda mu, epsilon=epsilon: priced.of_gaussian(mu**2, delta) - epsilon, 1e-3, 9)
        if number < 4:
            assert told == [math.ceil(1000 * scipy.stats.norm.cdf(mu / 2)) / 10]
        else:
            squares = [(count * mu)**2 if number < 8 else count * mu**2 for count in (2, 5, 10)]
            assert told == [math.ceil(100 * priced.of_gaussian(square, delta)) / 100 for square in squares]


def test_the_api_reference_has_every_exported_name():
    documented = re.findall(r"^::: ([\w.]+)", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(f"{module}.{name}" for name, module in datalens_tf._LAZY.items())


def test_every_public_method_is_documented():
    """By its own docstring, or by that of the method which it overrides; attributes of a Protocol by its class's."""
    names = [module.name for module in pkgutil.walk_packages(datalens_tf.__path__, "datalens_tf.")]
    if importlib.util.find_spec("tensorflow_privacy") is None:
        names.remove("datalens_tf.mechanisms.dp_query")
    classes = {kind for name in names for kind in vars(importlib.import_module(name)).values()
               if inspect.isclass(kind) and kind.__module__ == name and not kind.__name__.startswith("_")}
    found = {(kind, name) for kind in classes for name, member in vars(kind).items() if not name.startswith("_")
               and (inspect.isroutine(member)
                    or (isinstance(member, property) and not kind.__dict__.get("_is_protocol")))}
    assert len(found) > 200
    assert not [f"{kind.__name__}.{name}" for kind, name in found if not inspect.getdoc(getattr(kind, name))]


