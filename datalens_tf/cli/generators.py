"""`datalens sample`, `export` and `convert`: what a trained generator is good for."""

from __future__ import annotations

import argparse
import importlib.resources
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from etils import epy

from datalens_tf import _files, _validate
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods import runs

with epy.lazy_imports():
    import numpy as np
    import tqdm

    from datalens_tf.accounting import verification
    from datalens_tf.data import arrays, writing
    from datalens_tf.serving import client, convert
    from datalens_tf.serving import export as exports


def _add_sample_arguments(parser: Parser) -> None:
    parser.add_argument("--model", required=True,
                        help="a run folder, or a SavedModel that `export` wrote; with --server, the model's name there")
    parser.add_argument("--server", default=None, metavar="URL",
                        help="draw from a generator that is served there: http://HOST:PORT or https:// (REST), "
                             "grpc://HOST:PORT or grpcs://")
    parser.add_argument("--model_version", type=int, default=None, help="of --server, by default the latest")
    parser.add_argument("--token_file", default=None, metavar="FILE", help="of --server: the text that it asks for")
    parser.add_argument("--timeout", type=float, default=60.0, help="of --server: seconds for one request")
    parser.add_argument("--retries", type=int, default=10, help="of --server: further tries where a request fails")
    parser.add_argument("--num_samples", type=int, default=None,
                        help="how many; by default one per label in --labels, else 100")
    parser.add_argument("--labels", type=lambda text: text.split(","), default=None, metavar="LABEL,...",
                        help="classes to draw, in turn: their names, or numbers from 0 on where no class has a number "
                             "for its name; by default all, equally often, at random")
    parser.add_argument("--seed", type=int, default=None, help="makes the draw reproducible")
    parser.add_argument("--for", dest="purpose", choices=("training", "looking"), default="training",
                        help="looking: without the grain, rectangles and most moves that some generators add for "
                             "classifiers")
    parser.add_argument("--output", required=True,
                        help="FILE.npz (x uint8, y int64), or a new folder for PNGs, one sub-folder per class")
    parser.add_argument("--format", default=None, metavar="FORMAT",
                        help="npz, png, or tfds: a folder that TensorFlow Datasets reads; by default by --output")


def _add_export_arguments(parser: Parser) -> None:
    parser.add_argument("--run_dir", required=True, help="the run folder")
    parser.add_argument("--output_dir", required=True, help="parent folder of the versions")
    for name, kind in {"output_warp": float, "output_grain": float, "output_choices": int}.items():
        parser.add_argument(f"--{name}", type=kind, default=None, metavar="N" if kind is int else "X",
                            help="as in train, for a run that was trained without")
    parser.add_argument("--step", type=int, default=None,
                        help="the generator as it was after this step, with the smaller epsilon of the charges until "
                             "then; by default after the last")
    parser.add_argument("--version", type=int, default=1, help="integer >= 1, by default 1")
    parser.add_argument("--license_file", default=None, metavar="FILE",
                        help="the terms under which the generator is handed out, put beside the statement")
    parser.add_argument("--with_metrics", action="store_true", default=False,
                        help="the model card also says how useful the data is, as `evaluate` measured on real records; "
                             "epsilon does not cover that: only where those records may be shared")


def _add_convert_arguments(parser: Parser) -> None:
    parser.add_argument("--model", required=True, help="a run folder, or a SavedModel that `export` wrote")
    parser.add_argument("--output", required=True,
                        help="FILE.onnx, with sample.py beside it, which draws without this package; FILE.tflite; or "
                             "FILE.html: a page that draws images in the browser, without network access")
    parser.add_argument("--runtime_dir", default=None, metavar="FOLDER",
                        help="of a page: the folder `dist` of the npm package onnxruntime-web; by default npm gets it")


def _places(words: Sequence[str], class_names: Sequence[str]) -> np.ndarray:
    """Places of classes, which go by name; by number, too, if this cannot be taken for a name."""
    named = any(name.isdecimal() for name in class_names)
    return arrays.places_of([int(word) if word.isdecimal() and not named else word for word in words], class_names)


def _sample(args: argparse.Namespace) -> None:
    """`datalens sample`."""
    labels = args.labels
    count = args.num_samples if args.num_samples is not None else len(labels or range(100))
    _validate.integer("num_samples", count, at_least=1)
    target = pathlib.Path(args.output)
    kind = writing.format_of(target, args.format)
    _files.check_writable(target.parent)
    looking = args.purpose == "looking"
    for name in ("token_file", "model_version"):
        if getattr(args, name) is not None and not args.server:
            raise InvalidArgumentError(f"Expected --server with --{name}={getattr(args, name)}.")
    if looking and args.server:
        raise InvalidArgumentError("--for looking is not available with --server: ask it for the signature `looking`.")
    if labels is not None and not args.server:  # Mistakes are reported before the generator is loaded.
        running.check_finished(pathlib.Path(args.model))
        _places(labels, runs.class_names(pathlib.Path(args.model)))
    with _progress_bar(count, shown=bool(args.server)) as bar:
        if args.server:
            draw, class_names = _remote_drawer(args, bar.update)
        else:
            drawers = common.drawers(args.model)
            draw, class_names = drawers.looking if looking else drawers.training, drawers.class_names
        if labels is not None:
            labels = np.resize(_places(labels, class_names), count)  # Repeats them cyclically.
        x, y = draw(count, labels=labels, seed=args.seed)
    writing.write_images(target, kind, x, y, class_names)
    print(f"{len(x)} samples in {target}")


def _remote_drawer(args: argparse.Namespace, progress: Callable[[int], Any]
                   ) -> tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Sequence[str]]:
    """Drawer of a generator on a server."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # Errors are told in our own words.
    served = client.Client(args.server, model=args.model, version=args.model_version, timeout=args.timeout,
                           retries=args.retries, progress=progress,
                           token=None if args.token_file is None else common.read_token(args.token_file))
    return served.sample, served.class_names


def _progress_bar(count: int, shown: bool) -> Any:
    """A bar of images, on terminals only."""
    return tqdm.tqdm(total=count, unit="image", leave=False, disable=not (shown and sys.stderr.isatty()))


def _export(args: argparse.Namespace) -> None:
    """`datalens export`."""
    terms = None
    if args.license_file is not None:
        try:
            terms = pathlib.Path(args.license_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(f"Cannot read --license_file={args.license_file}: {error}.") from error
        _validate.require(terms.strip() != "", "--license_file", args.license_file, "to hold text")
    run = common.load_run(pathlib.Path(args.run_dir))
    print(run.export(args.output_dir, version=args.version, step=args.step, license_text=terms,
                     with_metrics=args.with_metrics, output_warp=args.output_warp, output_grain=args.output_grain,
                     output_choices=args.output_choices))
    if args.with_metrics:
        print("its model card has accuracies on real records: share it only where these may be shared", file=sys.stderr)


def _convert(args: argparse.Namespace) -> None:
    """`datalens convert`."""
    target = pathlib.Path(args.output)
    kind = target.suffix.removeprefix(".")
    _validate.require(kind in convert.FORMATS, "--output", args.output,
                      f"to end in .{', .'.join(convert.FORMATS)}: what to convert to")
    _validate.require(not target.exists(), "--output", args.output, "to be a new file; it is there already")
    options = {} if args.runtime_dir is None else {"runtime_dir": args.runtime_dir}
    if options and kind != "html":
        raise InvalidArgumentError(f"Expected no --runtime_dir: a .{kind} file has none.")
    folder = pathlib.Path(args.model)
    if (folder / "config.json").is_file():
        folder = common.load_run(folder).folder.generator
    generator = exports.load_generator(folder)
    verification.export_statement(generator.path)
    data = convert.FORMATS[kind](generator, **options)
    with _files.clear_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(target, data)
    print(target)
    if kind == "onnx":
        print(_write_sampler(target.with_name("sample.py")))


def _write_sampler(target: pathlib.Path) -> str:
    """Writes the script that draws from an ONNX file without this package; returns a line that says what is there."""
    script = importlib.resources.files("datalens_tf.serving").joinpath("sample.py").read_text(encoding="utf-8")
    if target.exists() and not (target.is_file() and target.read_text(encoding="utf-8", errors="replace") == script):
        return f"{target} was there, and is left as it is"
    _files.atomic_write(target, script)
    return f"{target} draws from it, with numpy and onnxruntime alone"


COMMANDS = {"sample": Command(_add_sample_arguments, _sample), "export": Command(_add_export_arguments, _export),
            "convert": Command(_add_convert_arguments, _convert)}
