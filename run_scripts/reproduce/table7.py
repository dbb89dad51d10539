"""Table 7 of the DataLens paper: what top-k, stochastic quantization and the threshold are good for.

    python run_scripts/reproduce/table7.py --runs_dir RUNS [--dataset mnist] [--epsilon 1] [--seeds 3] [--size small]

Each variant has one part switched off, the last one all parts. Without top-k a teacher votes on all d numbers of an
image, so that its noise is sqrt(d / k) times larger at the same epsilon. See variants.py, and `--help`.
"""

import variants
from variants import Variant


def ablations(base):
    """The paper's method and what is left of it."""
    del base
    return [
        Variant(name="full", published=0.7123),
        Variant(name="no_top_k", changes={"top_k": None}, published=0.5170),
        Variant(name="no_stochastic_quantization", changes={"quantization": "sign"}, published=0.6741),
        Variant(name="no_threshold", changes={"vote_threshold": None}, published=0.6361),
        Variant(name="none_of_them", changes={"top_k": None, "quantization": "sign", "vote_threshold": None}),
    ]


if __name__ == "__main__":
    variants.main(__doc__, "table7", ablations)
