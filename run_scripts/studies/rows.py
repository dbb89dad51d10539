"""Results of a study as rows of a CSV file, each computed once, so that an interrupted study can go on."""

import csv
import pathlib
from collections.abc import Mapping, Sequence


class Rows:
    """The rows of a file, to which more may be added.

    Args:
      path: the file, which may not be there yet.
      columns: names of all columns.
      told: names of the columns that tell rows apart.
    """

    def __init__(self, path: pathlib.Path, columns: Sequence[str], told: Sequence[str]):
        self.path, self._columns, self._told = path, columns, told
        if not path.exists():
            path.write_text(",".join(columns) + "\n", encoding="utf-8")
        self._known = {self._key(row) for row in self.read()}

    def _key(self, row: Mapping[str, object]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self._told)

    def __contains__(self, row: Mapping[str, object]) -> bool:
        return self._key(row) in self._known

    def read(self) -> list[dict[str, str]]:
        """All rows, in the order in which they were added."""
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def add(self, row: Mapping[str, object]) -> None:
        """Writes a row, so that it outlives the process."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerow(row)
        self._known.add(self._key(row))
