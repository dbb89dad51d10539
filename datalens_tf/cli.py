"""The command line: flags become settings, settings become one call.

Exit status: 0 done; 2 usage or bad input, with one line on stderr; 3 the budget pays for no step; 130 interrupted, with
the state saved; 1 anything else. Modules that load TensorFlow are imported by the commands that need them.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import re
import sys
import traceback
import typing
from typing import Any, Callable, Sequence

import numpy as np
from absl import flags
from absl import logging as absl_logging
from absl.flags import argparse_flags

from datalens_tf import __version__, _files, _validate, cli_classify, cli_pate, cli_plan
from datalens_tf.cli_common import (
    add_field, add_fields, field_names, field_texts, given_fields, integers, stop_on_signals)
from datalens_tf.config import ACCOUNTANTS, PRESETS, DataLensConfig, MethodConfig, PerformanceOptions, preset
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError
from datalens_tf.methods import CONFIGS, PateConfig, config_class, config_from_json
from datalens_tf.privacy.statement import round_up

# Filled in where they are None: by the data, or by the budget.
_RESOLVED = {"image_shape", "num_classes", "noise_multiplier", "noise_stddev", "num_users", "sampling_probability"}
_METRICS = ("utility", "classifiers", "quality", "membership")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line, without the program's name (default: this process'), and returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in argv  # Known before parsing, which may fail.
    # Both are read when TensorFlow is first imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if debug else "3")
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:  # Not on every system.
        # With a single thread for operations a function that waits for its data can wait for ever.
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
    try:
        try:
            args = _parser().parse_args(argv)
        except ValueError as error:  # of a flag that absl defines
            raise InvalidArgumentError(str(error)) from error
        if not debug:
            logging.getLogger("tensorflow").setLevel(logging.ERROR)
            absl_logging.set_verbosity(absl_logging.ERROR)
        args.command(args)
        return 0
    except BrokenPipeError:  # The reader of our output, `head` for example, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # pylint: disable=broad-exception-caught
        if debug:
            traceback.print_exception(error)
        status, line = _verdict(error)
        print(f"datalens: {' '.join(line.split())}", file=sys.stderr)
        return status


def _verdict(error: BaseException) -> tuple[int, str]:
    """Exit status and line of an error."""
    match error:
        case DataLensError():
            return error.exit_code, str(error)
        case OSError() if error.filename is not None:  # A name that is too long, for example.
            return 2, f"Cannot use {error.filename!r:.200}: {error.strerror}."
        case flags.Error():  # of --flagfile
            return 2, str(error)
        case KeyboardInterrupt():
            return 130, "Interrupted. Of a training run nothing released is lost: `train --resume` continues it."
        case _:
            return 1, f"internal error: {type(error).__name__}: {error}. Run it with --debug to see where."


# The commands.


def _train(args: argparse.Namespace) -> None:
    """`datalens train`."""
    folder = pathlib.Path(args.output_dir)
    config = _training_config(args, folder)
    options = PerformanceOptions(**given_fields(args, PerformanceOptions))

    from datalens_tf.data.datasets import load_dataset
    from datalens_tf.synthesizers.registry import synthesizer
    from datalens_tf.training.callbacks import PrivateLog, Progress, TensorBoard
    from datalens_tf.training.run_folder import RunFolder

    has_teachers = isinstance(config, (DataLensConfig, PateConfig))
    if options.distribute is None:
        options = dataclasses.replace(options, num_threads=options.num_threads or os.cpu_count())
    elif not isinstance(config, DataLensConfig):
        raise InvalidArgumentError(f"Expected no --distribute: the method {config.method} runs in one process.")
    if has_teachers:
        _one_core_per_operation(options.num_threads or os.cpu_count())
    if isinstance(config, DataLensConfig) and config.num_owners:
        from datalens_tf.training.distributed import Owners

        if options.distribute is None:
            raise InvalidArgumentError(f"Expected --distribute with num_owners={config.num_owners}: where they are.")
        dataset = Owners(config, options, args.data_dir)
    else:
        dataset = load_dataset(config.dataset, data_dir=args.data_dir)
    files = RunFolder(folder)
    files.create()
    progress = Progress(config.epsilon)
    synthesis = synthesizer(config.method)(
        config, run_dir=folder, options=options,
        callbacks=[progress, TensorBoard(files.logs), PrivateLog(files.private_log)])

    with stop_on_signals(synthesis.request_stop):
        try:
            synthesis.fit_dataset(dataset)
        finally:
            progress.on_end()  # Errors start on a line of their own.
    statement = synthesis.privacy_statement()
    guarantee = (f"epsilon {round_up(statement['epsilon'])} ({statement['accountant']}), delta {statement['delta']:g}"
                 if statement["private"] else statement["title"])
    steps = f", {statement['num_steps']} steps" if has_teachers else ""
    print(f"{guarantee}{steps}\nstatement {files.statement_text}\npicture {files.samples_png}")


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
        draw, class_names = _remote_drawer(args, bar.update) if args.server else _drawer(args.model)
        x, y = draw(count, labels=labels, seed=args.seed)
    write_images(target, kind, x, y, class_names)
    print(f"{len(x)} samples in {target}")


def _evaluate(args: argparse.Namespace) -> None:
    """`datalens evaluate`."""
    source = pathlib.Path(args.samples)
    is_run, is_archive = (source / "config.json").is_file(), source.suffix == ".npz"
    name = args.dataset or (_stored_config(source).dataset if is_run else None)
    if name is None:
        raise InvalidArgumentError("Expected --dataset: the real data to test on. Only a run folder knows its own.")
    if args.output_dir is None and not is_run:
        raise InvalidArgumentError("Expected --output_dir: the folder for metrics.json. Only a run folder is one.")
    if args.seeds is not None:
        _validate.integer("seeds", args.seeds, at_least=1)
    folder = pathlib.Path(args.output_dir or source)
    with _files.clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)

    from datalens_tf.data.datasets import load_dataset
    from datalens_tf.evaluation import evaluate, utility
    from datalens_tf.evaluation.cache import Cache
    from datalens_tf.evaluation.report import RunFacts, write_report
    from datalens_tf.serving.export import version_folder

    evaluate.require_extra()
    protocol = utility.FROZEN if args.protocol == utility.FROZEN.name else utility.paper_protocol(name)
    effort = evaluate.EFFORTS[args.effort]
    facts = RunFacts.read(source) if is_run else None if is_archive else RunFacts.read_export(version_folder(source))
    test = load_dataset(name, data_dir=args.data_dir, split="test")
    train = load_dataset(name, data_dir=args.data_dir) if set(args.metrics) != {"utility"} else None
    if is_archive:
        synthetic = load_dataset(f"npz:{source}")
        draw, varied = lambda seed: (synthetic.images, synthetic.labels), "the synthetic images are fixed"
    else:
        sample, _ = _drawer(args.samples)
        count = effort.num_synthetic or protocol.num_synthetic
        draw = functools.lru_cache(lambda seed: sample(count, seed=seed))  # Asked for in several places.
        varied = "so do the synthetic images"
    if facts is not None:
        described = f"Samples of a generator trained by the method {facts.statement['method']}"
    else:
        described = f"Samples from {source.name}"
    result = evaluate.evaluate(
        draw, train, test, source=described, effort=effort, metrics=args.metrics, protocol=protocol,
        varied=f"Between seeds the classifier's initial weights, order of records and dropout differ; {varied}. The "
               "generator was trained once.",
        seeds=None if args.seeds is None else range(args.seeds), epochs=args.epochs,
        state_dir=folder / "private" / "paper_protocol" if protocol is not utility.FROZEN else None,
        inception_weights=args.inception_weights, cache=Cache(args.cache_dir))
    metrics = result.metrics
    _files.atomic_write(folder / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    report = write_report(folder, result, facts, draw(0))
    if "utility" in metrics:
        found = metrics["utility"]
        spread = "" if found["accuracy_std"] is None else f" +- {found['accuracy_std']:.4f}"
        print(f"accuracy {found['accuracy_mean']:.4f}{spread} on {found['num_test']} real test records of {name}, "
              f"{len(found['per_seed'])} classifier(s)"
              + ("" if found["follows_protocol"] else ", not by the full protocol"))
    if "classifiers" in metrics:
        average = metrics["classifiers"]["average"]
        print(f"thirteen classifiers {average['synthetic']:.4f} on average, {100 * average['calibrated']:.0f} % of "
              "what real data gives")
    if "quality" in metrics:
        quality = metrics["quality"]
        print(f"Inception Score {quality['inception_score']['mean']:.2f}, Frechet distance (domain classifier) "
              f"{quality['frechet_domain_classifier']['value']:.1f}")
    print(f"metrics {folder / 'metrics.json'}\nreport {report}")


def _compare(args: argparse.Namespace) -> None:
    """`datalens compare`."""
    from datalens_tf.evaluation import charts, comparison, evaluate

    evaluate.require_extra()
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


def _privacy(args: argparse.Namespace) -> None:
    """`datalens privacy`."""
    accountants = ACCOUNTANTS if args.accountants == "all" else (args.accountants,)
    if args.ledgers:
        given = sorted(name for name in ("preset", *given_fields(args, DataLensConfig)) if hasattr(args, name))
        if set(given) - {"delta"}:
            raise InvalidArgumentError(f"Expected --ledger without --{(set(given) - {'delta'}).pop()}: ledgers hold "
                                       "what was spent; only --delta can be chosen.")

        from datalens_tf.privacy.ledger import PrivacyLedger
        from datalens_tf.privacy.report import composition_report, render_composition

        # A run folder stands for the ledger in it.
        paths = [path / "ledger.jsonl" if path.is_dir() else path for path in map(pathlib.Path, args.ledgers)]
        report = composition_report([PrivacyLedger.read(path) for path in paths], getattr(args, "delta", None),
                                    accountants)
        print(json.dumps(report, indent=2) if args.json else render_composition(report))
        return
    if not any(hasattr(args, name) for name in ("preset", "epsilon", "num_steps")):
        raise InvalidArgumentError("Expected --preset, --epsilon, --num_steps or --ledger: what to account for.")
    given = given_fields(args, DataLensConfig)
    config = (_preset_config(args) if hasattr(args, "preset") else DataLensConfig()).replace(**given)
    # A budget is asked about when it is given, or nothing else is.
    budget = config.epsilon if "epsilon" in given or "num_steps" not in given else None

    from datalens_tf.privacy.report import privacy_report, render_tables

    report = privacy_report(config, budget, accountants)
    print(json.dumps(report, indent=2) if args.json else render_tables(report))


def _audit(args: argparse.Namespace) -> None:
    """`datalens audit`."""
    folder = pathlib.Path(args.run_dir) if args.run_dir else None
    if folder is None and not hasattr(args, "preset"):
        raise InvalidArgumentError("Expected --run_dir or --preset: the settings to audit.")
    config = _stored_config(folder) if folder else _preset_config(args)
    if not isinstance(config, DataLensConfig):
        raise InvalidArgumentError(f"Expected a run of the method datalens to audit, got one of {config.method}.")
    config = config.replace(**given_fields(args, DataLensConfig))
    target = pathlib.Path(args.output_dir or folder or ".")
    with _files.clear_os_errors(target):
        target.mkdir(parents=True, exist_ok=True)

    import tqdm

    from datalens_tf.privacy.audit import audit_releases, with_training

    count = min(1000, config.num_teachers) if args.num_canaries is None else args.num_canaries
    # Each half of the audit may be wrong with half of the probability.
    confidence = 1 - (1 - args.confidence) / 2 if args.train else args.confidence
    shown = functools.partial(tqdm.tqdm, disable=not sys.stderr.isatty(), leave=False)
    report = audit_releases(config, trials=args.trials, num_canaries=count, confidence=confidence, progress=shown)
    if args.train:
        training = _audited_training(args, config, target / "audited_run", count, confidence, shown)
        report = with_training(report, training)
    _files.atomic_write(target / "audit.json", json.dumps(report, indent=2) + "\n")
    print(f"{report['verdict']}\n{args.confidence:.0%} confidence; many runs: {report['many_runs']['epsilon']:.4f}, "
          f"one run with {count} canaries: {report['one_run']['epsilon']:.4f}")
    if args.train:
        found = report["training"]
        print(f"a trained run with {count} canaries: from its releases {found['releases']['epsilon']:.4f}, from its "
              f"generator {found['generator']['epsilon']:.4f}\n{found['num_teachers_disturbed']} of "
              f"{found['num_teachers']} teachers depend on records of others; a record changed a step's votes by "
              f"{found['largest_change']:.1f}, of {found['sensitivity']:.1f} that are charged for\n"
              f"{found['privacy_note']}")
    print(target / "audit.json")
    if report["verdict"].startswith("CAUGHT"):
        raise DataLensError("The audit caught a mechanism that is less private than it claims.")


def _audited_training(args: argparse.Namespace, config: DataLensConfig, folder: pathlib.Path, num_canaries: int,
                      confidence: float, progress: Callable) -> dict[str, Any]:
    """Trains a run with canaries in the folder, and attacks it."""
    from datalens_tf.data.datasets import load_dataset
    from datalens_tf.privacy.canaries import audit_training
    from datalens_tf.training.callbacks import Progress

    _one_core_per_operation(os.cpu_count())
    dataset = load_dataset(config.dataset, data_dir=args.data_dir)
    config = config.replace(dataset=dataset.name, image_shape=dataset.image_shape, num_classes=dataset.num_classes)
    shown = Progress(config.epsilon)
    try:
        return audit_training(config, dataset, folder, num_canaries=num_canaries, confidence=confidence,
                              options=PerformanceOptions(num_threads=os.cpu_count()), callbacks=[shown],
                              progress=progress)
    finally:
        shown.on_end()


def _export(args: argparse.Namespace) -> None:
    """`datalens export`."""
    terms = None
    if args.license_file is not None:
        try:
            terms = pathlib.Path(args.license_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(f"Cannot read --license_file={args.license_file}: {error}.") from error
    print(_load_run(pathlib.Path(args.run_dir)).export(args.output_dir, version=args.version, step=args.step,
                                                       license_text=terms))


def _convert(args: argparse.Namespace) -> None:
    """`datalens convert`."""
    target = pathlib.Path(args.output)

    from datalens_tf.serving import convert
    from datalens_tf.serving.export import load_generator

    kind = target.suffix.removeprefix(".")
    _validate.require(kind in convert.FORMATS, "--output", args.output,
                      f"to end in .{', .'.join(convert.FORMATS)}: what to convert to")
    options = {} if args.runtime_dir is None else {"runtime_dir": args.runtime_dir}
    if options and kind != "html":
        raise InvalidArgumentError(f"Expected no --runtime_dir: a .{kind} file has none.")
    folder = pathlib.Path(args.model)
    generator = load_generator(_load_run(folder).folder.generator if (folder / "config.json").is_file() else folder)
    data = convert.FORMATS[kind](generator, **options)
    with _files.clear_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(target, data)
    print(target)


# Parts of the commands.


def _training_config(args: argparse.Namespace, folder: pathlib.Path) -> MethodConfig:
    """Settings of the run to start or to resume; refuses to start over a run, or to resume with other settings."""
    holds_run = any((folder / name).exists() for name in ("ledger.jsonl", "private/releases", "private/data.json"))
    if holds_run and not args.resume:
        raise InvalidArgumentError(f"{folder} holds a run: continue it with --resume, or choose another --output_dir.")
    if args.resume and not holds_run:
        raise InvalidArgumentError(f"{folder} holds no run to resume: leave out --resume, or check --output_dir.")
    if not args.resume:
        given = _method_settings(args, getattr(args, "method", "datalens"))
        if not (hasattr(args, "preset") or "dataset" in given):
            raise InvalidArgumentError("Expected --preset or --dataset: what to train on.")
        return _fresh_config(args, given)
    stored = _stored_config(folder)
    given = _method_settings(args, getattr(args, "method", stored.method))
    if hasattr(args, "preset") or given.get("method", stored.method) != stored.method:
        wanted = _fresh_config(args, given)
    else:
        wanted = stored.replace(**given)
    for field in dataclasses.fields(stored):
        mine, theirs = getattr(wanted, field.name, None), getattr(stored, field.name)
        # What the data and the budget decide is in the stored settings only.
        if mine != theirs and not (field.name in _RESOLVED and mine is None):
            raise CheckpointError(f"{folder} was trained with {field.name}={theirs!r}, not {mine!r}: resume with the "
                                  "same settings (--resume alone takes them), or choose another --output_dir.")
    return stored


def _method_settings(args: argparse.Namespace, method: str) -> dict[str, Any]:
    """The settings that the command line gave; refuses those of other methods."""
    kind = config_class(method)
    given = given_fields(args, kind)
    for other in CONFIGS.values():
        for name in sorted(set(given_fields(args, other)) - set(given)):
            raise InvalidArgumentError(f"Expected no --{name}: it is no setting of the method {method}.")
    return given


def _one_core_per_operation(num_threads: int) -> None:
    """Chunks of teachers side by side, each on one core, keep cores busier than operations split over cores."""
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # TensorFlow has started already, in a process that used it before.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)


def _fresh_config(args: argparse.Namespace, given: dict[str, Any]) -> MethodConfig:
    """The preset's settings, else those of the data set's own preset, else those for any data; with the given ones."""
    known = given.get("dataset") in {dataset for dataset, _ in PRESETS}
    if hasattr(args, "preset") or known:
        base = _preset_config(args)
    else:
        kind = config_class(given.get("method", "datalens"))
        base = kind.for_budget(given.get("epsilon", kind().epsilon))
    return base.replace(**given)


def _preset_config(args: argparse.Namespace) -> MethodConfig:
    """The preset for the budget, by default the smallest one that it was made for."""
    name, method = getattr(args, "preset", None) or args.dataset, getattr(args, "method", "datalens")
    made_for = [epsilon for dataset, epsilon in PRESETS if dataset == name]
    private = config_class(method).ADJACENCY != "none"
    return preset(name, getattr(args, "epsilon", min(made_for, default=1.0) if private else None), method)


def _stored_config(folder: pathlib.Path) -> MethodConfig:
    """The settings in a run folder."""
    try:
        return config_from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"Cannot read {folder / 'config.json'}, the settings of the run: {error}.") from error
    except InvalidArgumentError as error:
        raise CheckpointError(f"Damaged {folder / 'config.json'}: {error}") from error


def _load_run(folder: pathlib.Path):
    """The finished run in a folder."""
    config = _stored_config(folder)

    from datalens_tf.synthesizers.registry import synthesizer

    return synthesizer(config.method).load(folder)


def _drawer(model: str) -> tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Sequence[str]]:
    """`Synthesizer.sample` of a run folder, or of a SavedModel or a folder of its versions; and the classes' names."""
    from datalens_tf.serving.drawing import sample_from
    from datalens_tf.serving.export import load_generator, read_metadata

    folder = pathlib.Path(model)
    if (folder / "config.json").is_file():
        run = _load_run(folder)
        return run.sample, read_metadata(run.folder.generator / "1")["class_names"]
    generator = load_generator(folder)
    return functools.partial(sample_from, generator.sample, generator.num_classes), generator.class_names


def _remote_drawer(args: argparse.Namespace, progress: Callable[[int], Any]
                   ) -> tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Sequence[str]]:
    """The same of a generator on a server."""
    from datalens_tf.serving.client import Client

    client = Client(args.server, model=args.model, version=args.model_version, timeout=args.timeout,
                    retries=args.retries, progress=progress)
    return client.sample, client.class_names


def _progress_bar(count: int, shown: bool) -> Any:
    """A bar of images, on terminals only."""
    import tqdm

    return tqdm.tqdm(total=count, unit="image", leave=False, disable=not (shown and sys.stderr.isatty()))


# The parsers.


class _Parser(argparse_flags.ArgumentParser):
    """Reports mistakes in one line, without the usage."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **kwargs)
        self.add_argument("--debug", action="store_true", help="show tracebacks and TensorFlow's own messages")

    def error(self, message: str) -> typing.NoReturn:
        raise InvalidArgumentError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(prog="datalens", description="Differentially private image generators.")
    parser.add_argument("--version", action="version", version=f"datalens {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, function: Callable, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        sub.set_defaults(command=function)
        return sub

    presets = ", ".join(sorted({dataset for dataset, _ in PRESETS}))
    preset_help = f"take the settings made for this data set: {presets}"
    data_dir_help = "folder of TensorFlow Datasets; by default TFDS_DATA_DIR"

    train = command("train", _train, "train a generator and write a run folder")
    train.add_argument("--output_dir", required=True, help="the run folder")
    train.add_argument("--resume", action="store_true", default=False,
                       help="continue the run in --output_dir, with its own settings")
    train.add_argument("--preset", metavar="NAME", help=preset_help)
    train.add_argument("--data_dir", default=None, help=data_dir_help)
    _add_settings(train.add_argument_group("settings, by default the preset's"))
    add_fields(train.add_argument_group("speed"), PerformanceOptions)

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

    evaluate = command("evaluate", _evaluate,
                       "measure how good synthetic images are; writes metrics.json, report.html and charts")
    evaluate.add_argument("--samples", required=True,
                          help="FILE.npz with x and y; or a run folder or SavedModel, to draw 60,000 per seed")
    evaluate.add_argument("--dataset", default=None, help="real data to test on; by default that of the run")
    evaluate.add_argument("--data_dir", default=None, help=data_dir_help)
    evaluate.add_argument("--metrics", type=_metrics, default=_METRICS, metavar="NAME,...",
                          help="of utility (accuracy on real data after training on synthetic data), classifiers (the "
                               "same with thirteen others), quality (how the images compare with real ones); by "
                               "default all")
    effort = evaluate.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="effort", action="store_const", const="quick", default="default",
                        help="a first impression in two minutes: fewer images, epochs and records")
    effort.add_argument("--full", dest="effort", action="store_const", const="full", default="default",
                        help="gradient boosting, too, on all records: hours")
    evaluate.add_argument("--protocol", choices=("frozen", "paper"), default="frozen",
                          help="of utility; paper: 600 epochs, about ten hours, continued where it was interrupted")
    evaluate.add_argument("--seeds", type=int, default=None, help="number of classifiers for utility, by default 3")
    evaluate.add_argument("--epochs", type=int, default=None, help="of such a classifier, by default the protocol's 10")
    evaluate.add_argument("--inception_weights", default=None, metavar="FILE",
                          help="adds FID with Keras' InceptionV3: its weights without the top, or `download`")
    evaluate.add_argument("--cache_dir", default=None,
                          help="where classifiers of real data are kept, privately; by default DATALENS_CACHE, else "
                               "the user's cache folder")
    evaluate.add_argument("--output_dir", default=None, help="folder of the results; by default the run folder")

    compare = command("compare", _compare, "put evaluated runs side by side: a table and plots")
    compare.add_argument("runs", nargs="+", metavar="RUN", help="folders with privacy.json and metrics.json")
    compare.add_argument("--output_dir", required=True, help="folder for comparison.md, comparison.csv and the plots")

    privacy = command("privacy", _privacy, "account for privacy without training")
    privacy.add_argument("--preset", metavar="NAME", help=preset_help)
    add_fields(privacy, DataLensConfig, ("top_k", "noise_stddev", "batch_size", "num_steps", "epsilon", "delta"))
    privacy.add_argument("--accountant", dest="accountants", choices=("all", *ACCOUNTANTS), default="all",
                         help=f"all (the default), {', '.join(ACCOUNTANTS)}")
    privacy.add_argument("--ledger", dest="ledgers", action="append", default=[], metavar="FILE",
                         help="a run's ledger or run folder; several: what they cost together, if they are about the "
                              "same records")
    privacy.add_argument("--json", action="store_true", default=False, help="print JSON instead of tables")

    cli_plan.add_command(command)

    audit = command("audit", _audit, "attack the releases of a run, and bound its epsilon from below")
    audit.add_argument("--run_dir", default=None, help="take the settings of this run")
    audit.add_argument("--preset", metavar="NAME", help=preset_help)
    add_fields(audit, DataLensConfig, ("num_teachers", "top_k", "noise_stddev", "batch_size", "num_steps", "epsilon",
                                        "delta", "warmup_teacher_steps"))
    audit.add_argument("--train", action="store_true", default=False,
                       help="also train a run with canaries among the records, and attack it and its generator; takes "
                            "three times as long as the run, which is in audited_run of the output folder and can be "
                            "deleted afterwards")
    audit.add_argument("--data_dir", default=None, help=data_dir_help)
    audit.add_argument("--trials", type=int, default=1000, help="runs in each of two neighbouring worlds")
    audit.add_argument("--num_canaries", type=int, default=None,
                       help="of the attack on one run; by default 1,000, or as many as there are teachers")
    audit.add_argument("--confidence", type=float, default=0.95, help="of the bound")
    audit.add_argument("--output_dir", default=None, help="folder of audit.json; by default the run folder")

    export = command("export", _export, "copy a run's generator to a folder that TensorFlow Serving reads")
    export.add_argument("--run_dir", required=True, help="the run folder")
    export.add_argument("--output_dir", required=True, help="parent folder of the versions")
    export.add_argument("--step", type=int, default=None,
                        help="the generator as it was after this step, with the smaller epsilon of the charges until "
                             "then; by default after the last")
    export.add_argument("--version", type=int, default=1, help="integer >= 1, by default 1")
    export.add_argument("--license_file", default=None, metavar="FILE",
                        help="the terms under which the generator is handed out, put beside the statement")

    convert = command("convert", _convert, "make a generator run without TensorFlow: ONNX, TensorFlow Lite, a web page")
    convert.add_argument("--model", required=True, help="a run folder, or a SavedModel that `export` wrote")
    convert.add_argument("--output", required=True,
                         help="FILE.onnx, FILE.tflite, or FILE.html: a page that draws images in the browser, without "
                              "network access")
    convert.add_argument("--runtime_dir", default=None, metavar="FOLDER",
                         help="of a page: the folder `dist` of the npm package onnxruntime-web; by default npm gets it")
    cli_classify.add_command(command)
    cli_pate.add_command(command)
    return parser


def _add_settings(parser: Any) -> None:
    """A flag for every setting of any method; its help says for which, unless it is the same for all."""
    texts = {method: field_texts(kind) for method, kind in CONFIGS.items()}
    hints = {method: typing.get_type_hints(kind) for method, kind in CONFIGS.items()}
    for name in dict.fromkeys(name for kind in CONFIGS.values() for name in field_names(kind)):
        having = [method for method, kind in CONFIGS.items() if name in field_names(kind)]
        methods = {}
        for method in having:
            methods.setdefault(texts[method][name], []).append(method)
        whole = len(methods) == 1 and len(having) == len(CONFIGS)
        text = "; ".join(text if whole else f"{', '.join(of)}: {text}" for text, of in methods.items())
        add_field(parser, name, [hints[method][name] for method in having], text)


def _metrics(text: str) -> tuple[str, ...]:
    """Names of metrics."""
    unknown = set(text.split(",")) - set(_METRICS)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown metric {min(unknown)!r}; known: {', '.join(_METRICS)}")
    return tuple(text.split(","))
