"""The script beside an ONNX generator draws as the package does, and needs nothing of it."""

import ast
import json
import pathlib
import subprocess
import sys
import venv

import numpy as np
import onnxruntime
import pytest

from datalens_tf.cli import main
from datalens_tf.serving import sample
from datalens_tf.serving.export import export_generator, load_generator
from tests.serving.released import STATEMENT
from tests.serving.tiny_generator import SETTINGS, TinyGenerator


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    """A converted generator with its script."""
    folder = tmp_path_factory.mktemp("sample")
    model = export_generator(TinyGenerator(), folder / "served", **SETTINGS,
                             assets={"privacy.json": json.dumps(STATEMENT), "privacy.txt": "The statement."})
    assert main(["convert", "--model", str(model), "--output", str(folder / "x.onnx")]) == 0
    return folder


def test_it_imports_nothing_but_numpy_and_onnxruntime(folder):
    tree = ast.parse((folder / "sample.py").read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"argparse", "json", "numpy", "onnxruntime", "os"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_its_images_are_the_generators(folder):
    labels = np.arange(700) % 3
    latents = np.random.default_rng(5).uniform(-1, 1, (500, 6))
    signature = load_generator(folder / "served").model.signatures["from_latents"]
    expected = signature(latents=latents.astype(np.float32), labels=labels[:500])["images"].numpy()
    images = sample.draw(folder / "x.onnx", labels, seed=5)
    assert images.shape == (700, 8, 4, 1) and images.dtype == np.uint8
    np.testing.assert_allclose(images[:500] / 255, expected, atol=0.5 / 255 + 1e-6)
    assert not np.array_equal(sample.draw(folder / "x.onnx", labels), sample.draw(folder / "x.onnx", labels))


def run(python, folder, *words):
    return subprocess.run([python, "sample.py", "x.onnx", *words], cwd=folder, capture_output=True, text=True,
                          check=False, env={"PATH": "/usr/bin:/bin"})


def test_on_the_command_line(folder):
    done = run(sys.executable, folder, "--num_samples=5", "--labels=2,0", "--seed=1")
    assert done.returncode == 0 and done.stdout == "5 samples in images.npz\n", done
    with np.load(folder / "images.npz") as drawn:
        assert drawn["y"].tolist() == [2, 0, 2, 0, 2] and drawn["x"].shape == (5, 8, 4, 1)
    assert run(sys.executable, folder, "--statement").stdout == "The statement.\n"


@pytest.mark.parametrize("words, said", [
    (["--labels=3"], "expected --labels among 0, 1, 2, got '3'"), (["--labels=three"], "got 'three'"),
    (["--num_samples=-3"], "--num_samples of at least 1"), (["--seed=-1"], "--seed of at least 0"),
    (["--output=nowhere/x.npz"], "nowhere/x.npz: [Errno 2]"), (["--output=sample.py"], "sample.py to be a new file")])
def test_mistakes_are_one_line(folder, words, said):
    refused = run(sys.executable, folder, *words)
    assert refused.returncode == 2 and said in refused.stderr and "Traceback" not in refused.stderr
    assert "Draws synthetic" in (folder / "sample.py").read_text()


def test_another_file_is_no_generator(folder, tmp_path):
    (tmp_path / "x.onnx").write_text("no model")
    (tmp_path / "sample.py").write_bytes((folder / "sample.py").read_bytes())
    refused = run(sys.executable, tmp_path)
    assert refused.returncode == 2 and "expected x.onnx to be an ONNX file" in refused.stderr
    assert not (tmp_path / "images.npz").exists()


def test_each_label_is_drawn_once_by_default(folder, tmp_path):
    run(sys.executable, folder, "--labels=2,0", f"--output={tmp_path / 'two.npz'}")
    assert np.load(tmp_path / "two.npz")["y"].tolist() == [2, 0]


def test_what_has_its_name_stays(folder, tmp_path, capsys):
    (tmp_path / "sample.py").write_text("mine\n")
    assert main(["convert", "--model", str(folder / "served"), "--output", str(tmp_path / "y.onnx")]) == 0
    assert (tmp_path / "sample.py").read_text() == "mine\n" and "left as it is" in capsys.readouterr().out
    (tmp_path / "sample.py").unlink()
    (tmp_path / "sample.py").mkdir()
    assert main(["convert", "--model", str(folder / "served"), "--output", str(tmp_path / "z.onnx")]) == 0
    assert (tmp_path / "z.onnx").exists() and "left as it is" in capsys.readouterr().out


@pytest.mark.slow
def test_where_there_is_no_tensorflow_and_a_newer_numpy(folder, tmp_path):
    venv.create(tmp_path / "other", with_pip=True)
    python = tmp_path / "other" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "numpy>=2", f"onnxruntime=={onnxruntime.__version__}"],
                   check=True)
    newer = "import importlib.util, numpy; print(numpy.__version__, importlib.util.find_spec('tensorflow'))"
    told = subprocess.run([python, "-c", newer], capture_output=True, text=True, check=True).stdout.split()
    assert int(told[0].split(".")[0]) >= 2 and told[1] == "None"
    done = run(python, folder, "--num_samples=4", "--seed=1", f"--output={tmp_path / 'there.npz'}")
    assert done.returncode == 0, done
    assert run(sys.executable, folder, "--num_samples=4", "--seed=1", f"--output={tmp_path / 'here.npz'}"
               ).returncode == 0
    with np.load(pathlib.Path(tmp_path, "there.npz")) as there, np.load(pathlib.Path(tmp_path, "here.npz")) as here:
        assert np.abs(there["x"].astype(int) - here["x"]).max() <= 1
