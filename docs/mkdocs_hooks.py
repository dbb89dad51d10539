"""Puts the documents that lie outside docs/ into the site, and points links to them at their pages there."""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[1]
OUTSIDE = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "checkpoints/README.md", "results/results.csv",
           *(str(path.relative_to(ROOT)) for path in ROOT.glob("checkpoints/*/metrics.json"))]


def on_files(files, config):
    """Adds the documents; their links into docs/ lead to the pages beside them."""
    for name in OUTSIDE:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown, page, **_):
    """Links that leave docs/ from a page below it stay in the site."""
    up = "../" * page.file.src_uri.count("/")
    return re.sub(rf"\]\({re.escape(up)}\.\./({'|'.join(map(re.escape, OUTSIDE))})", rf"]({up}\1", markdown)
