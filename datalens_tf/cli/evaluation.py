"""`datalens evaluate` and `compare`: how good synthetic images are."""

from __future__ import annotations

import argparse
import json
import pathlib
import re

from etils import epy

from datalens_tf import _files, _validate
from datalens_tf.cli import common, real_records, running
from datalens_tf.cli.parser import CLASSES, Command, Parser, read_classes
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.evaluation import registry
from datalens_tf.methods import runs

with epy.lazy_imports():
    import numpy as np

    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.evaluation import cache, charts, comparison, context, evaluate, report
    from datalens_tf.serving import export as exports
    from datalens_tf.training import callbacks, classifier, progress, results


_VARIED = ("Between seeds the classifier's initial weights, order of records and dropout differ; {}. The generator was "
           "trained once.")


def _add_evaluate_arguments(parser: Parser) -> None:
    parser.add_argument("--samples", required=True,
                        help="FILE.npz with x and y; or a run folder or SavedModel, to draw 60,000 per seed")
    parser.add_argument("--dataset", default=None, help="real data to test on; by default that of the run")
    parser.add_argument("--classes", type=read_classes, default=None, metavar=CLASSES,
                        help="of the real data, whose other records are left out; by default those that the run "
                             "declares")
    parser.add_argument("--split", choices=("test", "holdout"), default=None,
                        help="records to test on: the test split, or those that the run held out of its data; by "
                             "default these, where there are any")
    parser.add_argument("--data_dir", default=None, help=common.DATA_DIR_HELP)
    common.add_picture_arguments(parser)
    common.add_reading_arguments(parser, "leave out files that are no pictures; by default what the run does")
    listed = "; ".join(f"{name}: {metric.summary}" for name, metric in registry.declared().items())
    parser.add_argument("--metrics", type=_metrics, default=tuple(registry.declared()), metavar="NAME,...",
                        help=f"what to measure, by default all. {listed}".replace("%", "%%"))
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="effort", action="store_const", const="quick", default="default",
                        help="a first impression in two minutes: fewer images, epochs and records")
    effort.add_argument("--full", dest="effort", action="store_const", const="full", default="default",
                        help="gradient boosting, too, on all records: hours")
    parser.add_argument("--protocol", choices=("frozen", "paper", "paper-short", "condensed", "residual"),
                        default="frozen",
                        help="of utility; paper: 600 epochs, hours; paper-short: 60; condensed: the larger network of "
                             "condensed data sets, 20; residual: a small residual network, 15; all but frozen continue "
                             "where they were interrupted, and also say what the best epoch had")
    parser.add_argument("--seeds", type=int, default=None, help="number of classifiers for utility, by default 3")
    parser.add_argument("--epochs", type=int, default=None, help="of such a classifier, by default the protocol's 10")
    parser.add_argument("--inception_weights", default=None, metavar="FILE",
                        help="adds FID with Keras' InceptionV3: its weights without the top, or `download`")
    parser.add_argument("--cache_dir", default=None,
                        help="where classifiers of real data are kept, privately; by default DATALENS_CACHE, else "
                             "the user's cache folder")
    parser.add_argument("--output_dir", default=None,
                        help="folder of all results; by default private/evaluation of the run folder, which also "
                             "gets a public report without what was measured on real records")
    running.add_progress_arguments(parser)


def _add_compare_arguments(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN",
                        help="run folders that were evaluated, or folders with privacy.json and metrics.json")
    parser.add_argument("--output_dir", required=True, help="folder for comparison.md, comparison.csv and the plots")


def _metrics(text: str) -> tuple[str, ...]:
    """Names of metrics."""
    known = registry.declared()
    unknown = set(text.split(",")) - set(known)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown metric {min(unknown)!r}; known: {', '.join(known)}."
                                         f"{_validate.did_you_mean(min(unknown), known)}")
    return tuple(text.split(","))


def _evaluate(args: argparse.Namespace) -> None:
    """`datalens evaluate`."""
    running.check_finished(pathlib.Path(args.samples))
    with running.shown(args) as shown:
        texts = _evaluated(args, shown)
    print("\n".join(texts))


def _evaluated(args: argparse.Namespace, shown: progress.Progress) -> list[str]:
    """Measures, writes the results, and returns the lines to print."""
    source = pathlib.Path(args.samples)
    choice = real_records.chosen(args)
    if args.output_dir is None and choice.run is None:
        raise InvalidArgumentError("Missing --output_dir: name a folder for the results. Only a run folder is one.")
    if args.seeds is not None:
        _validate.integer("seeds", args.seeds, at_least=1)
    if args.output_dir is None:
        folder, state_folder = results.make_results_folder(source), source
    else:
        folder = state_folder = pathlib.Path(args.output_dir)
        with _files.clear_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    evaluate.require_extra()
    protocol = classifier.protocol(args.protocol, choice.place)
    effort = context.EFFORTS[args.effort]
    synthetic = data_registry.load_dataset(f"npz:{source}") if source.suffix == ".npz" else None
    facts = None
    if choice.run is not None:
        facts = report.RunFacts.read(source)
    elif synthetic is None:
        facts = report.RunFacts.read_export(exports.version_folder(source))
    train, test = real_records.load(choice, args, synthetic, any(
        metric.needs_train for name, metric in registry.declared().items() if name in args.metrics))
    if synthetic is not None:
        examples = synthetic.images, synthetic.labels
        draw, show, varied = lambda seed: examples, None, "the synthetic images are fixed"
    else:
        drawers = common.drawers(args.samples)
        evaluate.check_alike(test, _image_shape(source), drawers.class_names)
        draw, show = drawers.for_evaluation(effort.num_synthetic or protocol.num_synthetic)
        examples, varied = _examples(drawers), "so do the synthetic images"
    described = f"Samples from {source.name}" if facts is None else _described(facts, choice.split == "holdout")
    shown.on_plan(f"{len(test):,} real test records of {test.name}", [
        callbacks.Stage("load"), callbacks.Stage("measure"), callbacks.Stage("report", 100.0)])
    result = evaluate.evaluate(
        draw, train, test, source=described, effort=effort, metrics=args.metrics, protocol=protocol,
        varied=_VARIED.format(varied), show=show,
        seeds=None if args.seeds is None else range(args.seeds), epochs=args.epochs,
        state_dir=state_folder / "private" / f"{protocol.name}_protocol" if protocol.every_epoch else None,
        inception_weights=args.inception_weights, cache=cache.Cache(args.cache_dir),
        progress=shown)
    shown.on_stage("report")
    public = source if args.output_dir is None else None
    texts = _written(folder, result, facts, examples, public)
    if public is None and choice.run is not None and folder.resolve() == source.resolve():
        # The new results replace earlier ones.
        (results.results_folder(source) / results.METRICS).unlink(missing_ok=True)
    return texts


def _described(facts: report.RunFacts, held_out: bool) -> str:
    """The synthetic images, in words."""
    where = ", tested on records that were held out of its data" if held_out else ""
    return f"Samples of a generator trained by the method {facts.statement['method']}{where}"


def _image_shape(source: pathlib.Path) -> tuple[int, int, int]:
    """(H, W, C) of the images of a run folder's generator, or of an exported one."""
    folder = source / "generator" if (source / "config.json").is_file() else source
    shape: tuple[int, int, int] = exports.read_metadata(exports.version_folder(folder))["image_shape"]
    return shape


def _examples(drawers: runs.Drawers) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels for reports: some of each class, for people."""
    labels = np.repeat(np.arange(len(drawers.class_names)), report.PER_CLASS)
    return drawers.looking(len(labels), labels=labels, seed=0)


def _written(folder: pathlib.Path, result: evaluate.Evaluation, facts: report.RunFacts | None,
             examples: tuple[np.ndarray, np.ndarray], public: pathlib.Path | None) -> list[str]:
    """Writes results and reports; returns the lines to print.

    Args:
      folder: of the results.
      result: what was measured.
      facts: of the run, where there is one.
      examples: synthetic images and labels, of which some of each class are shown.
      public: the run folder, which gets a report without what was measured; None for no such report.
    """
    _files.atomic_write(folder / results.METRICS, json.dumps(result.metrics, indent=2) + "\n")
    page = report.write_report(folder, result, facts, examples)
    texts = [line for name in registry.declared()
             if name in result.metrics and (line := registry.metric(name).headline(result.metrics[name]))]
    texts += [f"metrics {folder / results.METRICS}", f"report {page}"]
    if public is not None and facts is not None:
        texts.append(f"public report {report.write_public_report(public, facts, examples)}")
    return [*texts, result.metrics.get("utility", result.metrics)["privacy_note"]]


def why_not(records: datasets.Dataset) -> str | None:
    """A sentence that says why no classifier can measure images of such records; None if one can."""
    if records.num_classes < 2:
        return "Expected several classes, which a classifier could tell apart, got one."
    smallest = classifier.SMALLEST_SIDE
    if min(records.image_shape[:2]) < smallest:
        return f"Expected images of at least {smallest}x{smallest} for the classifier, got {list(records.image_shape)}."
    try:
        evaluate.require_extra()
    except InvalidArgumentError as error:
        return str(error)
    return None


def short_evaluation(run: pathlib.Path, train: datasets.Dataset, test: datasets.Dataset, *, held_out: bool,
                     shown: progress.Progress) -> list[str]:
    """Measures, in short and on real test records, the images of a run that has just ended; returns lines to print.

    Args:
      run: the run's folder, which gets the results.
      train: the records that the run was trained on.
      test: other records, all usable.
      held_out: whether the test records were held out of the run's data.
      shown: is told the stages.
    """
    effort = context.EFFORTS["short"]
    drawers = common.drawers(str(run))
    draw, _ = drawers.for_evaluation(effort.num_synthetic or classifier.FROZEN.num_synthetic)
    facts = report.RunFacts.read(run)
    shown.on_plan(f"short evaluation on {len(test):,} real test records of {test.name}", [
        callbacks.Stage("load"), callbacks.Stage("measure"), callbacks.Stage("report", 100.0)])
    result = evaluate.evaluate(
        draw, train, test, source=_described(facts, held_out), effort=effort, metrics=("utility",),
        varied=_VARIED.format("so do the synthetic images"), cache=cache.Cache(), progress=shown)
    shown.on_stage("report")
    texts = _written(results.make_results_folder(run), result, facts, _examples(drawers), run)
    return ["Short evaluation; `datalens evaluate` has the full protocol.", *texts]


def _compare(args: argparse.Namespace) -> None:
    """`datalens compare`."""
    evaluate.require_extra()
    for run in args.runs:
        running.check_finished(pathlib.Path(run))
    rows = comparison.table([comparison.read_result(pathlib.Path(run)) for run in args.runs])
    folder = pathlib.Path(args.output_dir)
    with _files.clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(folder / "comparison.md", comparison.markdown(rows))
    _files.atomic_write(folder / "comparison.csv", comparison.csv_text(rows))
    for dataset, figure in comparison.accuracy_charts(rows).items():
        _files.atomic_write(folder / f"comparison_{re.sub(r'[^A-Za-z0-9]+', '_', dataset)}.png",
                            charts.png_bytes(figure))
    print(comparison.markdown(rows), end="")


COMMANDS = {"evaluate": Command(_add_evaluate_arguments, _evaluate),
            "compare": Command(_add_compare_arguments, _compare)}
