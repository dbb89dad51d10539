"""`datalens sample`, `export` and `convert`: what a trained generator is good for."""

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datalens_tf import _files, _validate
from datalens_tf.cli.common import drawer, integers, load_run
from datalens_tf.errors import InvalidArgumentError


def add_commands(command: Callable) -> None:
    """Adds the commands' parsers, which `command` makes from a name, a function and a text."""
    sample = command("sample", _sample, "draw synthetic images")
    sample.add_argument("--model", required=True,
                        help="a run folder, or a SavedModel that `export` wrote; with --server, the model's name there")
    sample.add_argument("--server", default=None, metavar="URL",
                        help="draw from a generator that is served there: http://HOST:PORT or https:// (REST), "
                             "grpc://HOST:PORT or grpcs://")
    sample.add_argument("--model_version", type=int, default=None, help="of --server, by default the latest")
    sample.add_argument("--timeout", type=float, default=60.0, help="of --server: seconds for one request")
    sample.add_argument("--retries", type=int, default=10, help="of --server: further tries where a request fails")
    sample.add_argument("--num_samples", type=int, default=None,
                        help="how many; by default one per label in --labels, else 100")
    sample.add_argument("--labels", type=integers, default=None, metavar="LABEL,...",
                        help="classes to draw, in turn; by default all, equally often, in random order")
    sample.add_argument("--seed", type=int, default=None, help="makes the draw reproducible")
    sample.add_argument("--output", required=True,
                        help="FILE.npz (x uint8, y int64), or a new folder for PNGs, one sub-folder per class")
    sample.add_argument("--format", default=None, metavar="FORMAT",
                        help="npz, png, or tfds: a folder that TensorFlow Datasets reads; by default by --output")

    export = command("export", _export, "copy a run's generator to a folder that TensorFlow Serving reads")
    export.add_argument("--run_dir", required=True, help="the run folder")
    export.add_argument("--output_dir", required=True, help="parent folder of the versions")
    export.add_argument("--step", type=int, default=None,
                        help="the generator as it was after this step, with the smaller epsilon of the charges until "
                             "then; by default after the last")
    export.add_argument("--version", type=int, default=1, help="integer >= 1, by default 1")
    export.add_argument("--license_file", default=None, metavar="FILE",
                        help="the terms under which the generator is handed out, put beside the statement")

    export.add_argument("--with_metrics", action="store_true", default=False,
                        help="the model card also says how useful the data is, as `evaluate` measured on real records; "
                             "epsilon does not cover that: only where those records may be shared")

    convert = command("convert", _convert, "make a generator run without TensorFlow: ONNX, TensorFlow Lite, a web page")
    convert.add_argument("--model", required=True, help="a run folder, or a SavedModel that `export` wrote")
    convert.add_argument("--output", required=True,
                         help="FILE.onnx, FILE.tflite, or FILE.html: a page that draws images in the browser, without "
                              "network access")
    convert.add_argument("--runtime_dir", default=None, metavar="FOLDER",
                         help="of a page: the folder `dist` of the npm package onnxruntime-web; by default npm gets it")


def _sample(args: argparse.Namespace) -> None:
    """`datalens sample`."""
    labels = args.labels
    count = args.num_samples if args.num_samples is not None else len(labels or range(100))
    _validate.integer("num_samples", count, at_least=1)
    if labels is not None:
        labels = np.resize(labels, count)  # Repeats them cyclically.
    target = pathlib.Path(args.output)

    from datalens_tf.data.writing import format_of, write_images

    kind = format_of(target, args.format)
    with _progress_bar(count, shown=bool(args.server)) as bar:
        draw, class_names = _remote_drawer(args, bar.update) if args.server else drawer(args.model)
        x, y = draw(count, labels=labels, seed=args.seed)
    write_images(target, kind, x, y, class_names)
    print(f"{len(x)} samples in {target}")


def _remote_drawer(args: argparse.Namespace, progress: Callable[[int], Any]
                   ) -> tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Sequence[str]]:
    """Drawer of a generator on a server."""
    from datalens_tf.serving.client import Client

    client = Client(args.server, model=args.model, version=args.model_version, timeout=args.timeout,
                    retries=args.retries, progress=progress)
    return client.sample, client.class_names


def _progress_bar(count: int, shown: bool) -> Any:
    """A bar of images, on terminals only."""
    import tqdm

    return tqdm.tqdm(total=count, unit="image", leave=False, disable=not (shown and sys.stderr.isatty()))


def _export(args: argparse.Namespace) -> None:
    """`datalens export`."""
    terms = None
    if args.license_file is not None:
        try:
            terms = pathlib.Path(args.license_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(f"Cannot read --license_file={args.license_file}: {error}.") from error
    print(load_run(pathlib.Path(args.run_dir)).export(args.output_dir, version=args.version, step=args.step,
                                                       license_text=terms, with_metrics=args.with_metrics))


def _convert(args: argparse.Namespace) -> None:
    """`datalens convert`."""
    target = pathlib.Path(args.output)

    from datalens_tf.accounting.verification import export_statement
    from datalens_tf.serving import convert
    from datalens_tf.serving.export import load_generator

    kind = target.suffix.removeprefix(".")
    _validate.require(kind in convert.FORMATS, "--output", args.output,
                      f"to end in .{', .'.join(convert.FORMATS)}: what to convert to")
    options = {} if args.runtime_dir is None else {"runtime_dir": args.runtime_dir}
    if options and kind != "html":
        raise InvalidArgumentError(f"Expected no --runtime_dir: a .{kind} file has none.")
    folder = pathlib.Path(args.model)
    generator = load_generator(load_run(folder).folder.generator if (folder / "config.json").is_file() else folder)
    export_statement(generator.path)
    data = convert.FORMATS[kind](generator, **options)
    with _files.clear_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(target, data)
    print(target)
