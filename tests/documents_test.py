"""What the documents name exists."""

import argparse
import pathlib
import re

import pytest

from datalens_tf import cli

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
    """Of a command of `datalens`, of a script here, or of `ray` and `sha256sum`, which are shown in use."""
    scripts = "\n".join(script.read_text() for kind in ("py", "sh") for script in ROOT.glob(f"run_scripts/**/*.{kind}"))
    known = {flag for parser in _parsers(cli._parser()) for flag in parser._option_string_actions}
    known |= set(re.findall(r'add_argument\("(--\w+)"', scripts)) | set(re.findall(r"== (--\w+)", scripts))
    known |= {"--address", "--resources", "--check"}
    assert not sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text())) - known)


def _parsers(parser):
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()
