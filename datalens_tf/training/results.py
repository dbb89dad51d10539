"""Place of results that were measured on real records: below a run folder's `private/`, which is never shared."""

import pathlib

from datalens_tf import _files

METRICS = "metrics.json"


def results_folder(run: pathlib.Path) -> pathlib.Path:
    """`private/evaluation` of a run folder; it need not exist."""
    return run / "private" / "evaluation"


def make_results_folder(run: pathlib.Path) -> pathlib.Path:
    """Makes the folder, for this user alone (mode 700); raises DataLensError where the operating system refuses."""
    folder = results_folder(run)
    with _files.clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for place in (folder.parent, folder):
            place.chmod(0o700)
    return folder


def result_file(folder: pathlib.Path, name: str = METRICS) -> pathlib.Path:
    """The newest result about a folder: that in its `private/evaluation` if there is one, else that in the folder.

    The folder itself holds the results of an evaluation with an `--output_dir`, those that were released with a
    generator, and those of run folders from before results were private.
    """
    private = results_folder(folder) / name
    return private if private.exists() else folder / name
