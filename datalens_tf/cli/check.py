"""`datalens check`: what would be trained on which data, before anything runs."""

from __future__ import annotations

import argparse
import os
import shlex

from etils import epy

from datalens_tf import _text
from datalens_tf.accounting import delta as deltas
from datalens_tf.cli import advise, common
from datalens_tf.cli.parser import CLASSES, Command, Parser, read_classes
from datalens_tf.facts import DataFacts
from datalens_tf.methods import plans, registry

with epy.lazy_imports():
    from datalens_tf.data import registry as data_registry
    from datalens_tf.data import survey as surveys

_SHOWN = 20  # classes, or files that cannot be read
_DARK = 3  # Pictures are nearly black if their largest number is less than this part of what is white.


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("data", metavar="DATA", help="a folder, a file, or another name that --dataset takes")
    parser.add_argument("--epsilon", type=float, default=1.0, metavar="X", help="privacy budget (default: 1)")
    parser.add_argument("--classes", type=read_classes, default=None, metavar=CLASSES,
                        help="public classes: a number, names with commas, or a file of names")
    parser.add_argument("--data_dir", default=None, help=common.DATA_DIR_HELP)
    parser.add_argument("--unit", default=None, metavar="NAME",
                        help="whose pictures are protected together, as in train")
    common.add_picture_arguments(parser)
    common.add_reading_arguments(parser, "as in train; files that cannot be read are listed with and without it")


def _check(args: argparse.Namespace) -> None:
    """The command itself: it reads, and writes to the terminal alone."""
    place = data_registry.located(args.data)
    survey = data_registry.survey(place, data_dir=args.data_dir, classes=args.classes,
                                  pictures=common.pictures(args, bits=args.picture_bits), unit=args.unit)
    public, private = survey.public, survey.private
    facts = DataFacts(num_records=public.num_records, image_shape=public.image_shape, num_classes=public.num_classes,
                      num_slots=public.num_slots, unit=public.unit)
    choice = registry.best(facts, args.epsilon)
    config = registry.config_class(choice.method).for_data(
        facts, args.epsilon, {"delta": plans.usual_delta(place, facts.num_records)})
    deltas.check_delta(config, facts.num_records)
    lines = ["PUBLIC", *_indented(_public(public, facts, config.delta, place)), "",
             "PRIVATE: do not share, it depends on single records", *_indented(_private(public, private)), "",
             "METHOD", *_indented(_method(choice, facts, args.epsilon)), "",
             "NEXT", *_indented([(line, "") for line in _commands(args, place, public)])]
    print("\n".join(lines))


def _indented(rows: list[tuple[str, str]]) -> list[str]:
    return [f"  {name:<15}{text}" if text else f"  {name}" for name, text in rows]


def _public(public: surveys.SurveyedFacts, facts: DataFacts, delta: float, place: str) -> list[tuple[str, str]]:
    """Public facts: they are the same for all data that differ in one record."""
    kinds = f" ({', '.join(public.formats)})" if public.formats else ""
    asked = not public.declared and public.layout in ("arrays", "labels.csv", "parquet")
    declared = "; read from the records and taken to be public: --classes declares them" if asked else ""
    found = [("data", f"{_text.without_folders(public.name)}, {public.layout}{kinds}"), ("records", str(facts)),
             ("classes", _listed([_text.printable(name) for name in public.class_names]) + declared),
             ("delta", f"{delta:g}, which is {delta * facts.num_records:.2g}/n")]
    named = any(name != str(label) for label, name in enumerate(public.class_names))
    if named and len(public.class_names) > 1 and not data_registry.has_public_classes(place):
        found.append(("published", "these names, with every copy of the generator: rename a class that is named after "
                                   "a person"))
    if data_registry.decodes_pictures(place) and public.unit is None:
        found.append(("protected", "one picture. If a person has several, --unit says whose they are, and protects "
                                   "the person"))
    if not data_registry.has_test(place):
        found.append(("to test on", "nothing: train with --holdout 0.1, or keep other records for evaluate --dataset"))
    if public.num_slots < public.num_records:
        found.append(("file names", f"{public.num_slots:,} different ones; files of one name share a teacher, so that "
                                    "there can be no more teachers"))
    return found


def _private(public: surveys.SurveyedFacts, private: surveys.PrivateFacts) -> list[tuple[str, str]]:
    """Private facts: they depend on single records."""
    counts = [f"{_text.printable(name)} {count:,}" for name, count in zip(public.class_names, private.class_counts)]
    found = [("per class", _listed(counts))]
    if private.sizes:
        (low, high) = private.sizes
        found.append(("sizes", f"width x height from {low[0]} x {low[1]} to {high[0]} x {high[1]}"))
    if private.largest_number:
        found.append(("numbers", _brightness(*private.largest_number)))
    if private.without_colour and 0 < private.without_colour[0] == private.without_colour[1]:
        found.append(("colours", "none in the first pictures. If all are black and white, --color grey makes the same "
                                 "budget go further"))
    if private.unit_sizes:
        files = [_text.printable(file) for file in private.largest_unit]
        found.append(("pictures", f"from {private.unit_sizes[0]:,} to {private.unit_sizes[1]:,} of one unit"
                      + (f"; the first of the largest: {', '.join(files)}" if files else "")))
    if private.undeclared:
        found.append(("undeclared", f"{private.undeclared:,} records of no declared class keep their place and "
                                    "contribute nothing"))
    if private.left_out:
        names = _listed([_text.printable(name) for name in private.left_out])
        found.append(("left out", f"{names}, because it lies beside the folders that are read"))
    if private.unreadable:
        files = [f"{_text.printable(file)} ({reason})" for file, reason in private.unreadable.items()]
        found.append(("unreadable", f"{len(files):,}: {_listed(files)}. With --skip_unreadable they keep their place "
                                    "and contribute nothing"))
    return found


def _brightness(largest: int, white: int) -> str:
    """Compares the largest number of some pictures with the number that is white."""
    text = f"up to {largest:,} in the first pictures of 16 or 32 bits, where {white:,} is white"
    if _DARK * largest < white or largest > white:
        what = "they are nearly black" if largest < white else "what is larger is cut off"
        return f"{text}: {what}. --picture_bits {min(max(1, largest.bit_length()), 32)} makes {largest:,} bright"
    return text


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


def _method(choice: registry.Choice, facts: DataFacts, epsilon: float) -> list[tuple[str, str]]:
    """The method that is taken, how long it takes, and how useful its images were on other data."""
    found = [(choice.method, choice.why)]
    if choice.method != registry.DEFAULT:
        found.append(("otherwise", f"--method {registry.DEFAULT} trains DataLens' teachers; `datalens methods` has "
                                   "all others"))
    return found + advise.expectation(facts, epsilon, choice.method)


def _commands(args: argparse.Namespace, place: str, public: surveys.SurveyedFacts) -> list[str]:
    """Commands to type next, by public facts alone."""
    name = _text.without_folders(place).partition(":")[2] or place
    stem = os.path.splitext(name)[0]
    run = os.path.join("runs", stem)
    words = ["train", "--dataset", place, *_picture_words(args), "--epsilon", f"{args.epsilon:g}"]
    if args.data_dir is not None:
        words += ["--data_dir", args.data_dir]
    if args.unit is not None:
        words += ["--unit", args.unit]
    if args.classes is not None:
        words += ["--classes", str(len(args.classes)) if args.classes == tuple(map(str, range(len(args.classes))))
                  else ",".join(args.classes)]
    if data_registry.decodes_pictures(place):  # For every folder, because it is private whether a file cannot be read.
        words.append("--skip_unreadable")
    commands = [[*words, "--output_dir", run]]
    if data_registry.has_test(place):
        commands.append(["evaluate", "--samples", run, "--quick"])
    return [shlex.join(["datalens", *command]) for command in [
        *commands, ["sample", "--model", run, "--num_samples", "1000", "--output", f"{stem}-samples"],
        ["export", "--run_dir", run, "--output_dir", os.path.join("serving", stem)],
        ["convert", "--model", run, "--output", f"{stem}.tflite"]]]


def _picture_words(args: argparse.Namespace) -> list[str]:
    """The flags that say how pictures become images."""
    words = []
    if args.image_size is not None:
        words += ["--image_size", "x".join(map(str, args.image_size[:1 + (args.image_size[0] != args.image_size[1])]))]
    if args.color is not None:
        words += ["--color", args.color]
    if args.picture_bits is not None:
        words += ["--picture_bits", str(args.picture_bits)]
    return words + ["--unlabelled"] * args.unlabelled


COMMANDS = {"check": Command(_add_arguments, _check)}
