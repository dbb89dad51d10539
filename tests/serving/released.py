"""A released generator: its folder and its statement."""

import json
import pathlib

ENTRY = pathlib.Path(__file__).parents[2] / "checkpoints" / "mnist_eps1"
STATEMENT = json.loads((ENTRY / "privacy.json").read_text())
