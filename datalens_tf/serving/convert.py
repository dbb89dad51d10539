"""Generators for runtimes other than TensorFlow: ONNX, TensorFlow Lite, and a web page that needs no server.

All three take latents float32 [n, z] and labels int64 [n] and give images float32 [n, H, W, C] in [0, 1], like the
signature `from_latents`; all carry the privacy statement. Needs the extra `serving`.
"""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator

import tensorflow as tf

from datalens_tf import _checksums, _text
from datalens_tf._files import PathLike, parse_json
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.wording import counted, how_many, meaning, render_text
from datalens_tf.errors import DataLensError, InvalidArgumentError
from datalens_tf.serving.digests import converted_checksums, onnx_digest, tflite_digest
from datalens_tf.serving.export import LoadedGenerator

# onnxruntime-web, published on npm: the library, and the program that it loads.
_WEB_PACKAGE = "onnxruntime-web@1.30.0"
_WEB_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
_NPM_SECONDS = 300  # that a download may take
_OPSET = 15
_STATED = ("ledger.jsonl", "privacy.json", "privacy.txt", "model.json", "MODEL_CARD.md", "LICENSE")


def to_onnx(generator: LoadedGenerator) -> bytes:
    """An ONNX model; the statement and the model card are in its metadata, by their file names."""
    try:
        import onnx
        import tf2onnx
    except ImportError as error:
        raise _without("onnx", error) from error
    function, specs = _function(generator)
    model, _ = tf2onnx.convert.from_function(function, specs, opset=_OPSET)
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    texts = stated(generator)
    sums = converted_checksums(texts, onnx_digest(model))
    onnx.helper.set_model_props(model, texts | {_checksums.NAME: sums})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def to_tflite(generator: LoadedGenerator) -> bytes:
    """A TensorFlow Lite model that is also a zip archive: the statement and the model card are associated files."""
    function, _ = _function(generator)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], generator.model)
    with _quietly():
        data = converter.convert()
    texts = stated(generator)
    buffer, sums = io.BytesIO(data), converted_checksums(texts, tflite_digest(data))
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, text in (texts | {_checksums.NAME: sums}).items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return buffer.getvalue()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Holds back what libraries write to the file descriptor of stderr, and shows it if they fail."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        except BaseException:
            written.seek(0)
            os.write(kept, written.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def to_page(generator: LoadedGenerator, runtime_dir: PathLike | None = None) -> bytes:
    """One HTML file that draws images in a browser, from a disk or a server, without network access.

    Args:
      generator: of images with 1 or 3 channels.
      runtime_dir: folder `dist` of the npm package onnxruntime-web; by default npm downloads it.

    Raises:
      InvalidArgumentError: the generator has no privacy statement, or images that are no pictures.
      DataLensError: the runtime cannot be read or downloaded.
    """
    try:
        import jinja2
    except ImportError as error:
        raise _without("Jinja2", error) from error
    texts = stated(generator)
    if "privacy.json" not in texts or generator.image_shape[2] not in (1, 3):
        raise InvalidArgumentError(f"Expected {generator.path} to hold a privacy statement and to draw images with 1 "
                                   f"or 3 channels, not {generator.image_shape[2]}.")
    statement = parse_json(texts["privacy.json"])
    library, program = _runtime(runtime_dir)
    environment = jinja2.Environment(loader=jinja2.PackageLoader("datalens_tf.serving"), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=_text.finalize)
    environment.filters["csp_hash"] = _csp_hash
    return environment.get_template("page.html.j2").render(
        statement=statement, statement_text=render_text(statement), class_names=generator.class_names,
        epsilon=round_up(statement["epsilon"]) if statement["private"] else None,
        meaning=meaning(statement) if statement["private"] else None,
        how_many=f"{how_many(statement)} {counted(statement)}",
        # In a script element, "<" can begin text that ends the element too early or too late.
        settings=json.dumps({"image_shape": generator.image_shape, "latent_dim": generator.latent_dim,
                             "latent_distribution": generator.latent_distribution,
                             "class_names": generator.class_names}).replace("<", "\\u003c"),
        library=_packed(library), program=_packed(program), model=_packed(to_onnx(generator))).encode()


def stated(generator: LoadedGenerator) -> dict[str, str]:
    """Texts that the export has about itself: file name -> text."""
    folder = generator.path / "assets.extra"
    return {name: (folder / name).read_text(encoding="utf-8") for name in _STATED if (folder / name).is_file()}


FORMATS: dict[str, Callable[..., bytes]] = {"onnx": to_onnx, "tflite": to_tflite, "html": to_page}


def _function(generator: LoadedGenerator):
    """`from_latents` with plain inputs, and their specifications."""
    serve = generator.model.signatures["from_latents"]
    specs = [tf.TensorSpec([None, generator.latent_dim], tf.float32, "latents"),
             tf.TensorSpec([None], tf.int64, "labels")]
    return tf.function(lambda latents, labels: serve(latents=latents, labels=labels), input_signature=specs,
                       autograph=False), specs


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _csp_hash(script: str) -> str:
    """Name of an inline script in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _runtime(folder: PathLike | None) -> list[bytes]:
    """The files of onnxruntime-web."""
    try:
        if folder is not None:
            return [(pathlib.Path(folder) / name).read_bytes() for name in _WEB_FILES]
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["npm", "pack", "--silent", _WEB_PACKAGE], cwd=scratch, check=True, capture_output=True,
                           text=True, timeout=_NPM_SECONDS)
            (archive,) = pathlib.Path(scratch).glob("*.tgz")
            with tarfile.open(archive) as files:
                return [_content(files, f"package/dist/{name}") for name in _WEB_FILES]
    except (OSError, KeyError, ValueError, tarfile.TarError, subprocess.SubprocessError) as error:
        said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else ""
        reason = said.splitlines()[-1] if said else str(error)
        where = f"{os.fspath(folder)}" if folder is not None else f"npm, the package {_WEB_PACKAGE}"
        raise DataLensError(f"Cannot get onnxruntime-web from {where}: {reason.rstrip('.')}. Install npm, or name the "
                            "package's folder `dist` with --runtime_dir.") from error


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    """Content of a plain file in an archive; raises KeyError where it has none of this name."""
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is no plain file")
    return file.read()


def _without(name: str, error: ImportError) -> InvalidArgumentError:
    return InvalidArgumentError(f"Expected the extra `serving` to be installed ({error}): pip install "
                                f"'datalens_tf[serving]'; without it there is no {name}.")
