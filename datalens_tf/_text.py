"""Names and texts that others chose, made harmless before they are shown: in markdown, in tables, on web pages."""

import html
import os
import re
import shutil
from collections.abc import Callable
from typing import Any

# Control characters, characters without a width, and characters that change the direction of writing, with which a text
# can look like another one. Also lone surrogates, which no file can hold.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
                        "\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?( *%)?")
_FORMULA = ("=", "+", "-", "@")  # what spreadsheets compute


def printable(text: str) -> str:
    """The text in one line, with U+FFFD in place of every character that cannot be seen or that misleads."""
    return _INVISIBLE.sub("\ufffd", text)


def without_folders(name: str) -> str:
    """The name of data without the folders above: `npz:FILE`, `folder:DIR`, `parquet:FILE` or `tfds:FOLDER`."""
    kind, _, place = name.partition(":")
    if kind in ("npz", "folder", "parquet") or (kind == "tfds" and place.startswith(("/", ".", "~"))):
        *above, last = ["data", *(part for part in place.split(os.sep) if part not in ("", ".", ".."))]
        version = kind == "tfds" and re.fullmatch(r"\d+\.\d+\.\d+", last)
        name = f"{kind}:{above[-1]}/{last}" if version else f"{kind}:{last}"
    return printable(name)


def finalize(value: Any) -> Any:
    """Applies `printable`, line by line, to all that a Jinja template shows, except what a macro or `safe` made."""
    return "\n".join(map(printable, value.split("\n"))) if type(value) is str else value


def cell(text: str) -> str:
    """The text for a cell of a table: printable, no HTML, and no formula; numbers stay as they are."""
    text = html.escape(printable(text), quote=False)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def markdown(text: str) -> str:
    """The text for markdown: as in `cell`, and no cell, link or picture begins or ends in it."""
    return re.sub(r"([\\|\[\]])", r"\\\1", cell(text))


def everywhere(change: Callable[[str], str], value: Any) -> Any:
    """Applies a change to all texts of a JSON value, keys included."""
    match value:
        case str():
            return change(value)
        case dict():
            return {change(key): everywhere(change, item) for key, item in value.items()}
        case list() | tuple():
            return [everywhere(change, item) for item in value]
    return value


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def terminal_width() -> int:
    """Columns of the terminal, up to 100."""
    return min(100, shutil.get_terminal_size((100, 45)).columns)
