"""Table 4 of the DataLens paper: number of teachers N, top-k, threshold beta and clip c, one at a time.

    python run_scripts/reproduce/table4.py --runs_dir RUNS [--dataset mnist] [--epsilon 1] [--seeds 3] [--size small]

All rows have the same epsilon and number of steps. The paper's rows have the same sigma, and train until epsilon is
spent; a smaller N at the same sigma / N, as one might try to save time, would have a larger epsilon. See variants.py,
and `--help`.
"""

import variants
from variants import Variant

PUBLISHED = {  # On MNIST at epsilon 1.
    "num_teachers": {0.5: 0.5841, 0.75: 0.7061},  # Shares of 4,000.
    "top_k": {0.5: 0.5889, 1.0: 0.7123, 1.5: 0.6753},  # Shares of 200; smaller images have smaller presets.
    "vote_threshold": {0.0: 0.6361, 0.1: 0.6450, 0.3: 0.6890, 0.5: 0.6921, 0.7: 0.7123, 0.9: 0.6956},
    "clip": {1e-6: None, 1e-5: 0.7123, 1e-4: None, None: None},
}
LETTERS = {"num_teachers": "N", "top_k": "k", "vote_threshold": "beta", "clip": "c"}


def sweeps(base):
    """The preset's settings, and each of these with one changed."""
    rows = [Variant(name="preset", published=0.7123 if base.epsilon == 1 else None)]
    for setting, values in PUBLISHED.items():
        for value, published in values.items():
            value = round(value * getattr(base, setting)) if setting in ("num_teachers", "top_k") else value
            if value != getattr(base, setting):
                shown = "none" if value is None else f"{value:g}"
                rows.append(Variant(name=f"{LETTERS[setting]}{shown}", changes={setting: value}, published=published))
    return rows


if __name__ == "__main__":
    variants.main(__doc__, "table4", sweeps)
