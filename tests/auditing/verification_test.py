"""Verification: what is in order passes, and whatever was altered does not."""

import json
import pathlib
import re
import shutil

import dp_accounting
import onnx
import pytest
import tensorflow as tf

from datalens_tf import _checksums
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.auditing.verification import verify
from datalens_tf.cli import main
from datalens_tf.errors import DataLensError
from datalens_tf.serving import convert
from datalens_tf.serving.export import load_generator

RELEASED = pathlib.Path(__file__).parents[2] / "checkpoints" / "mnist_plus_eps1"


def failures(path):
    return [check.text for check in verify(path) if check.passed is False]


@pytest.fixture(name="version")
def fixture_version(tmp_path):
    """A SavedModel of its own."""
    return pathlib.Path(shutil.copytree(RELEASED / "generator" / "1", tmp_path / "generator" / "1"))


@pytest.fixture(name="converted", scope="module")
def fixture_converted(tmp_path_factory):
    """A generator in both formats, and as a page with a runtime that nothing looks at."""
    folder, generator = tmp_path_factory.mktemp("converted"), load_generator(RELEASED / "generator")
    (folder / "dist").mkdir()
    for name in convert._WEB_FILES:
        (folder / "dist" / name).write_bytes(b"runtime")
    for name, data in (("x.onnx", convert.to_onnx(generator)), ("x.tflite", convert.to_tflite(generator)),
                       ("x.html", convert.to_page(generator, folder / "dist"))):
        (folder / name).write_bytes(data)
    return folder


def test_on_the_command_line(version, tmp_path, capsys):
    for path in (RELEASED, version.parent, version):
        assert main(["verify", str(path)]) == 0
        out = capsys.readouterr().out
        assert "epsilon 1.0000 (gdp) at delta 1e-05, replace-one, is what 100 charges cost" in out
        assert "FAILED" not in out and "Nobody can know from outside:" in out
    (version / "assets.extra" / "LICENSE").write_text("Do what you like.")
    assert main(["verify", str(version)]) == 2
    out, error = capsys.readouterr()
    assert "FAILED    SavedModel, files: assets.extra/LICENSE was changed" in out
    assert len(error.splitlines()) == 1 and "1 of 3 checks failed" in error
    for path in (tmp_path / "none", tmp_path, tmp_path / "x.png"):
        (tmp_path / "x.png").write_bytes(b"")
        assert main(["verify", str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", ["variables/more.data", "assets.extra/more.json", "assets/words.txt"])
def test_a_file_that_was_added_to_a_saved_model_is_noticed(version, name):
    (version / name).parent.mkdir(exist_ok=True)
    (version / name).write_text("")
    assert failures(version)


def test_a_forged_statement_with_fresh_checksums_is_noticed(version):
    path = version / "assets.extra" / "privacy.json"
    statement = json.loads(path.read_text())
    path.write_text(json.dumps(statement | {
        "epsilon": 0.1, "epsilon_by_accountant": dict.fromkeys(statement["epsilon_by_accountant"], 0.1)}))
    reseal(version)
    failure, described = failures(version)
    assert re.search(r"SavedModel, statement: .*states epsilon 0.1 by .*, and the charges cost", failure)
    assert "the statement that it answers to `describe` is another one" in described


def test_every_version_is_looked_at(version):
    shutil.copytree(version, version.parent / "2")
    (version / "variables" / "variables.index").write_bytes(b"")
    texts = [check.text for check in verify(version.parent)]
    assert len(texts) == 6 and {text.partition(",")[0] for text in texts} == {"SavedModel 1", "SavedModel 2"}
    assert all(text.startswith("SavedModel 1") for text in failures(version.parent))


def test_a_generator_under_the_statement_of_another_is_noticed(version, tmp_path):
    """Its checksums are fresh: the model itself answers another statement."""
    other = RELEASED.parent / "mnist_eps10" / "generator" / "1"
    shutil.copytree(other, tmp_path / "mixed")
    for name in ("privacy.json", "ledger.jsonl"):
        shutil.copy(version / "assets.extra" / name, tmp_path / "mixed" / "assets.extra" / name)
    reseal(tmp_path / "mixed")
    found = failures(tmp_path / "mixed")
    assert len(found) == 1 and "that it answers to `describe` is another one than that beside it" in found[0]


def test_a_model_that_reads_files_is_noticed(version):
    class Reader(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
        def read(self, name):
            return {"content": tf.io.read_file(name)}

    module = Reader()
    tf.saved_model.save(module, str(version.parent / "2"), signatures=module.read)
    for name in ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"):
        shutil.copy(version.parent / "2" / name, version / name)
    reseal(version)
    (failure,) = failures(version)
    assert "operations that no generator of this package has: ReadFile" in failure


def reseal(version):
    """What a forger does who knows about checksums."""
    sums = version / "assets.extra" / _checksums.NAME
    sums.unlink()
    sums.write_text(_checksums.text_of(version, [path for path in version.rglob("*") if path.is_file()]))


@pytest.mark.parametrize("change", [
    lambda text: text.replace("  ", " ", 1), lambda text: text.upper(), lambda text: text[:-1],
    lambda text: text + "\n",
    lambda text: "0" * 64 + "  ../../../somewhere\n" + text, lambda text: ""])
def test_checksums_that_were_touched_are_noticed(version, change):
    sums = version / "assets.extra" / _checksums.NAME
    sums.write_text(change(sums.read_text()))
    assert failures(version)


@pytest.mark.parametrize("name", ["x.onnx", "x.tflite", "x.html"])
def test_converted_files_pass(converted, name):
    checks = verify(converted / name)
    assert all(check.passed for check in checks) and len(checks) == 2, checks


def test_altered_converted_files_are_noticed(converted, tmp_path):
    data, path = (converted / "x.tflite").read_bytes(), tmp_path / "x.tflite"
    for place in (1000, 200_000):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1:])
        assert failures(path), place
    path.write_bytes(data.replace(b'"epsilon": 0.9999', b'"epsilon": 0.0999'))
    assert failures(path)
    model = onnx.load(converted / "x.onnx")
    weights = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weights.raw_data = weights.raw_data[:-1] + bytes([weights.raw_data[-1] ^ 1])
    onnx.save(model, tmp_path / "x.onnx")
    assert "are not what was converted" in failures(tmp_path / "x.onnx")[0]
    model = onnx.load(converted / "x.onnx")
    (entry,) = [entry for entry in model.metadata_props if entry.key == "privacy.json"]
    entry.value = json.dumps(json.loads(entry.value) | {"num_charges": 1})
    onnx.save(model, tmp_path / "x.onnx")
    assert len(failures(tmp_path / "x.onnx")) == 2


@pytest.mark.parametrize("name", ["x.onnx", "x.tflite", "x.html"])
def test_what_is_no_converted_file_is_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(b"something else")
    assert len(failures(tmp_path / name)) == 1
    assert main(["verify", str(tmp_path / name)]) == 2


def test_a_run_without_its_ledger_and_a_mixed_up_generator_are_noticed(tmp_path):
    run = pathlib.Path(shutil.copytree(RELEASED, tmp_path / "run"))
    (run / "SHA256SUMS").unlink()
    other = RELEASED.parent / "mnist_eps1"
    shutil.rmtree(run / "generator")
    shutil.copytree(other / "generator", run / "generator")
    (failure,) = failures(run)
    assert "the statement in the SavedModel is another one than the run's" in failure
    (run / "ledger.jsonl").unlink()
    assert any("there is no ledger of what was charged" in text for text in failures(run))
    with pytest.raises(DataLensError, match="Found no SavedModel"):
        verify(tmp_path)


@pytest.mark.parametrize("planned, charged, complaint", [
    (0.5, 1.0, "these settings make charges of"), (1.0, 0.5, "which these settings do not make")])
def test_a_ledger_of_other_noise_than_its_settings_is_noticed(tmp_path, planned, charged, complaint):
    run = pathlib.Path(shutil.copytree(RELEASED, tmp_path / "run"))
    honest = PrivacyLedger.read(run / "ledger.jsonl")
    (run / "ledger.jsonl").unlink()
    forged = PrivacyLedger.create(
        run / "ledger.jsonl", epsilon=100.0, delta=honest.delta, accountant=honest.accountant,
        config_digest=honest.config_digest,
        step_event=dp_accounting.GaussianDpEvent(planned * honest.step_event.noise_multiplier))
    forged.spend(dp_accounting.GaussianDpEvent(charged * honest.step_event.noise_multiplier), step=1)
    assert any(complaint in text for text in failures(run))


@pytest.mark.parametrize("lost", [0, 2, -1])
def test_lost_charges_are_noticed(lost, tmp_path):
    """The first, one within, the last; also where no checksum tells."""
    run = pathlib.Path(shutil.copytree(RELEASED, tmp_path / "run"))
    lines = (run / "ledger.jsonl").read_text().splitlines(keepends=True)
    del lines[1 + lost if lost >= 0 else lost]  # The first line says what the ledger is of.
    (run / "ledger.jsonl").write_text("".join(lines))
    (run / "SHA256SUMS").unlink()
    assert any("ledger" in text or "charges" in text for text in failures(run))
