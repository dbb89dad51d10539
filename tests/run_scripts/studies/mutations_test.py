"""The study of mutations: what it puts back is in the code, and the tests that must notice exist."""

import pathlib
import re
import sys

import pytest

from run_scripts.studies import mutations

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.trap)
def test_a_mutation_can_be_made_and_its_test_exists(mutation):
    text = (ROOT / "datalens_tf" / mutation.file).read_text()
    assert mutation.applied(text) != text
    path, _, keyword = mutation.test.partition(" -k ")
    file = ROOT / "tests" / path.partition("::")[0]
    # Conformance suites lie beside the tests that inherit them.
    suites = [other for other in file.parent.glob("*.py") if not other.name.endswith("_test.py")]
    names = [name for source in (file, *suites) for name in re.findall(r"def (\w+)", source.read_text())]
    words = [word for word in re.findall(r"\w+", keyword) if word not in ("and", "or", "not")]
    assert all(any(word in name for name in names) for word in [*words, *path.split("::")[1:]])


@pytest.mark.study
def test_a_mutation_is_noticed(monkeypatch, capsys):
    trap = next(mutation.trap for mutation in mutations.MUTATIONS if mutation.file == "mechanisms/topagg.py")
    monkeypatch.setattr(sys, "argv", ["mutations.py", "--only", trap])
    assert mutations.main() == 0 and "unnoticed" in capsys.readouterr().out
