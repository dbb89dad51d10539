"""Installation of datalens_tf."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "datalens_tf/__init__.py").read_text(), re.MULTILINE).group(1)

_RAY = "ray~=2.52.0"  # Accepts what TensorFlow Privacy pins.
# xgboost-cpu is xgboost without half a gigabyte of GPU libraries.
_JINJA = "Jinja2"
# Later releases of onnx need protobuf 5, TensorFlow 2.15 needs 4.
_SERVING = ["tf2onnx~=1.17.0", "onnx==1.17.0", _JINJA]
_EVAL = ["matplotlib>=3.7", "xgboost-cpu", _JINJA]

setup(
    name="datalens_tf",
    version=VERSION,
    description="Differentially private image generators: train, state the guarantee, export, sample",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["datalens_tf", "datalens_tf.*"]),
    package_data={"datalens_tf.evaluation": ["templates/*.j2"], "datalens_tf.serving": ["templates/*.j2"]},
    # tensorflow-privacy 0.9.0 does not install on 3.12; older versions are not tested.
    python_requires=">=3.11,<3.12",
    install_requires=[
        # tensorflow-privacy 0.9.0 does not import with TensorFlow 2.16 and its Keras 3.
        "tensorflow~=2.15.0",
        # The newest release. It fixes dp-accounting, whose numbers are part of our statements, to 0.4.3.
        "tensorflow-privacy==0.9.0",
        # Messages and stubs of TensorFlow Serving, a small package. Later ones would install a later TensorFlow.
        "tensorflow-serving-api~=2.15.1",
        "dp-accounting",
        # The version that the data loading is tested with.
        "tensorflow-datasets==4.9.10",
        # tensorflow-datasets 4.9.10 imports it to download data, but asks for it only below Python 3.9.
        "importlib_resources",
        # 1.18 and later are built for protobuf 5 and more; TensorFlow 2.15 needs protobuf 4.
        "tensorflow-metadata<1.18",
        # 26 does not import with numpy 1; tensorflow-datasets needs it.
        "pyarrow<26",
        # TensorFlow 2.15 is built for numpy 1 and does not import with numpy 2.
        "numpy<2",
        "scipy",
        # 1.3 is the first for Python 3.11 with all we use; a next major version may remove it.
        "scikit-learn>=1.3,<2",
        "absl-py",
        "attrs",
        # Decides what float64 leaves open when exact noise is drawn.
        "mpmath",
        # Reads what is in a Keras file before Keras does; TensorFlow brings it.
        "h5py",
        "Pillow",
        "requests",
        "tqdm",
        # Before 78.1.1, a package index could make it write files anywhere (CVE-2025-47273). TensorBoard 2.15 imports
        # pkg_resources, which setuptools 81 no longer has.
        "setuptools>=78.1.1,<81",
    ],
    extras_require={
        "eval": _EVAL,
        "ray": [_RAY],
        "serving": _SERVING,
        # selenium drives the browser that shows pages; jsonschema checks metrics.json; onnxruntime runs what was
        # converted.
        "test": ["pytest", "pytest-xdist", "hypothesis", "selenium", "jsonschema", "onnxruntime", _RAY, *_EVAL,
                 *_SERVING],
    },
    entry_points={"console_scripts": ["datalens = datalens_tf.cli:main"]},
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3.11",
    ],
)
