import importlib.metadata
import os
import subprocess
import sys

import pytest

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
KERAS_3 = ("import sys, types\nsys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
           "sys.modules['tensorflow'].keras = types.ModuleType('keras._tf_keras.keras')\nimport datalens_tf")


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**ENVIRONMENT, **environment})


@pytest.mark.parametrize("first, second", [("datalens_tf", "tensorflow"), ("tensorflow", "datalens_tf")])
def test_the_package_and_tensorflow_are_imported_in_either_order(first, second):
    done = run(f"import {first}, {second}\nimport tensorflow as tf\nfrom datalens_tf.models import generator\n"
               "print(tf.keras.Sequential.__module__)")
    # That of Keras 3 is in keras.src.models. TensorFlow 2.15's autograph would rewrite all of tf-keras.
    keras = "keras" if importlib.metadata.version("tensorflow").startswith("2.15.") else "tf_keras"
    assert done.stdout.strip() == f"{keras}.src.engine.sequential", done.stderr


def test_keras_3_in_use_is_one_clear_line(tmp_path):
    (tmp_path / "keras-3.0.dist-info").mkdir()
    (tmp_path / "keras-3.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 3.0\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = run(KERAS_3, PYTHONPATH=path)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == (
        "ImportError: Expected tf.keras to be Keras 2, and it is in use as Keras 3: import datalens_tf before tf.keras "
        "is first used, or set the environment variable TF_USE_LEGACY_KERAS=1.")
    # Before it is used, and where there is no TensorFlow yet, all is well.
    assert run(KERAS_3.replace("keras._tf_keras.keras", "lazy"), PYTHONPATH=path).returncode == 0
    assert run("import datalens_tf, os\nassert os.environ['TF_USE_LEGACY_KERAS'] == '1'", PYTHONPATH=path,
               TF_USE_LEGACY_KERAS="0").returncode == 0
