"""Parser of commands' flags: mistakes are one line with a way out, and help fits a screen."""

from __future__ import annotations

import argparse
import functools
import pathlib
import textwrap
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from absl.flags import argparse_flags

from datalens_tf._text import terminal_width
from datalens_tf._validate import did_you_mean
from datalens_tf.config import check_classes, numbered
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.settings import Setting, Settings, declared

CLASSES = "LIST"

# Settings without a flag. They are known from the data, or are for tests in Python because they switch privacy off.
# Only `train` has --method, which it adds itself.
_NOT_FLAGS = {"method", "image_shape", "num_classes", "model_digest", "features_digest", "insecure_noise_seed"}
# Headings of settings in `--help`, in this order.
_GROUPS = {"data": "data", "budget": "privacy budget", "mechanism": "mechanism: what is released, with how much noise",
           "teachers": "teachers", "discriminators": "discriminators", "generator": "generator", "student": "student",
           "training": "training", "speed": "speed and memory, which change no result"}
_NAME_A_RUN = {"--model", "--samples", "--run_dir", "--ledger"}  # In each command, one of these does.
_METAVARS = {int: "N", float: "X", str: "TEXT"}


class Command(NamedTuple):
    """A command: what it reads and does.

    Attributes:
      arguments: adds the flags to a parser.
      run: the command itself, given the parsed flags.
    """

    arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]


class Parser(argparse_flags.ArgumentParser):
    """Reads one command's words, or those before the command.

    Attributes:
      words: the words to read.
      page: makes the help; argparse's list of flags where None.
      explain_unknown: returns the reason that the command does not have a flag, or None.
    """

    page: Callable[[], str] | None = None
    explain_unknown: Callable[[str], str | None] | None = None

    def __init__(self, prog: str, description: str, words: Sequence[str]):
        self.words = list(words)
        super().__init__(prog=prog, description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS,
                         formatter_class=functools.partial(argparse.HelpFormatter, max_help_position=32,
                                                           width=terminal_width()))
        self._required: list[argparse.Action] = []
        self._of_absl = list(self._actions)  # --help, which was just typed, and --helpfull.
        for action in self._of_absl:
            action.help = argparse.SUPPRESS
        self.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)

    def parse(self) -> argparse.Namespace:
        """The flags that the words give; raises InvalidArgumentError."""
        self._required = [action for action in self._actions if action.required]
        try:
            # A misspelt flag is reported before the flag that is missing because of it.
            for action in self._required:
                action.required = False
            _, unknown = self.parse_known_args(self.words)
            if unknown:
                self._refuse(unknown[0])
            for action in self._required:
                action.required = True
            namespace = self.parse_args(self.words)
        except ValueError as error:  # of a flag that absl defines
            raise InvalidArgumentError(str(error)) from error
        namespace.words = namespace.words if hasattr(namespace, "words") else self.words
        return namespace

    def format_help(self) -> str:
        """The command's page where it has one, else its flags; the usage names required flags alone."""
        required = [_shown(action) for action in self._actions if action.required or action in self._required]
        self.usage = " ".join([self.prog, *required, "[FLAG ...]"])
        return self.page() if self.page else super().format_help()

    def error(self, message: str) -> typing.NoReturn:
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            known = {name: action for action in self._actions for name in (*action.option_strings, action.metavar)}
            names = [name for name in missing.split(", ") if name in known]
            message = f"Missing {', '.join(names)}" + (f": {first_sentence(known[names[0]].help)}" if len(names) == 1
                                                      else ".")
        raise InvalidArgumentError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Argparse's check of choices, with a suggestion."""
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"{value!r} is not one of {', '.join(map(str, action.choices))}."
                        f"{did_you_mean(value, action.choices)}")

    def _refuse(self, word: str) -> typing.NoReturn:
        if not word.startswith("-"):
            names = [option.lstrip("-") for option in self._options()]
            near = did_you_mean(word.partition("=")[0], names).replace("mean ", "mean --")
            for option in self._options():
                if option in _NAME_A_RUN and pathlib.Path(word).exists():
                    near = f" Did you mean {option} {word:.200}?"
            self.error(f"Unexpected {word!r:.200}: flags begin with --, and this command takes no such word.{near}")
        flag = word.partition("=")[0]
        why = self.explain_unknown(flag.lstrip("-")) if self.explain_unknown else None
        self.error(why or f"Unknown flag {flag:.200}.{did_you_mean(flag, self._options())}")

    def _options(self) -> list[str]:
        """All flags except those that absl adds."""
        return [option for action in self._actions if action not in self._of_absl for option in action.option_strings]


def _shown(action: argparse.Action) -> str:
    """A required argument in a line of usage."""
    if not action.option_strings:
        return f"{action.metavar} ..." if action.nargs in ("+", argparse.REMAINDER) else str(action.metavar)
    return f"{action.option_strings[0]} {action.metavar or action.dest.upper()}"


def first_sentence(text: str | None) -> str:
    """A text up to its first full stop."""
    sentence = (text or "").replace("%%", "%").split(". ")[0]
    return sentence if sentence.endswith(".") else f"{sentence}."


def table(rows: Collection[tuple[str, str]], indent: int = 2, column: int | None = None) -> str:
    """Names and texts in two columns, as wide as help is."""
    column = indent + 2 + max(len(name) for name, _ in rows) if column is None else column
    lines = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, terminal_width() - column) or [""]
        lines += [f"{' ' * indent}{name}".ljust(column) + wrapped[0], *(" " * column + line for line in wrapped[1:])]
    return "\n".join(line.rstrip() for line in lines)


def add_settings(parser: Parser, settings: type[Settings] | Iterable[type[Settings]],
                 names: Collection[str] | None = None, *, brief: bool = False) -> None:
    """Adds a flag for each setting, or each named one, by groups; a flag that is not given is not in the namespace.

    Args:
      parser: gets the flags.
      settings: class that declares them; or several classes, where a flag takes what any of them takes.
      names: which ones; None for all that have a flag.
      brief: whether the help is only the first sentence of the declared help.
    """
    chosen: dict[str, Setting] = {}
    for kind in [settings] if isinstance(settings, type) else settings:
        for name, setting in declared(kind).items():
            wanted = name not in _NOT_FLAGS and (names is None or name in names)
            if wanted and (name not in chosen or (setting.is_optional and not chosen[name].is_optional)):
                chosen[name] = setting
    for key in sorted({setting.group for setting in chosen.values()}, key=[*_GROUPS].index):
        group = parser.add_argument_group(_GROUPS[key])
        for name, setting in chosen.items():
            if setting.group == key:
                _add_setting(group, name, setting, brief)


def _add_setting(group: argparse._ArgumentGroup, name: str, setting: Setting, brief: bool) -> None:
    """One flag."""
    text = first_sentence(setting.help).removesuffix(".") if brief else setting.help
    default = "none" if setting.default is None else f"{setting.default:g}" \
        if isinstance(setting.default, float) else str(setting.default)
    kind = setting.kinds[0]
    if kind is not bool and name != "dataset" and not (brief and setting.default is None):
        text = f"{text} (default: {default})"
    text = text.replace("%", "%%")
    if name == "classes":
        group.add_argument("--classes", type=read_classes, metavar=CLASSES, help=text)
    elif kind is bool and setting.default:
        group.add_argument(f"--no_{name}", dest=name, action="store_false", help=f"Switches this off: {text}")
    elif kind is bool:
        group.add_argument(f"--{name}", action="store_true", help=text)
    else:
        group.add_argument(f"--{name}", type=_reader(setting), metavar=_METAVARS[kind], help=text)


def _reader(setting: Setting) -> Callable[[str], Any]:
    """A function that reads a value of the setting's type; it reads `none` as None where the type allows that."""
    kind = setting.kinds[0]

    def read(text: str) -> Any:
        return None if setting.is_optional and text.lower() == "none" else kind(text)

    read.__name__ = kind.__name__  # Named in argparse's message.
    return read


def given_settings(args: argparse.Namespace, settings: type[Settings]) -> dict[str, Any]:
    """The settings of a class that the command line gave."""
    return {name: getattr(args, name) for name in declared(settings) if hasattr(args, name)}


def read_classes(text: str) -> tuple[str, ...] | None:
    """Classes as the command line declares them: a number, names with commas, a file with one name per line, or `none`.

    Raises:
      argparse.ArgumentTypeError: the text is something else.
    """
    try:
        if text.lower() == "none":
            return None
        if text.isdecimal():
            return numbered(int(text[:20]))
        if "," in text:
            return check_classes([name.strip() for name in text.split(",")])
        return check_classes([line.strip() for line in pathlib.Path(text).read_text(encoding="utf-8").splitlines()
                              if line.strip()])
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(
            f"Expected classes={text!r} to be a number, names separated by commas, or a text file with one name a "
            f"line: {getattr(error, 'strerror', None) or 'it is no text'}.") from error
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
