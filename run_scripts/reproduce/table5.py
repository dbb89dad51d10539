"""Table 5 of the DataLens paper: TopAgg, D2P-Fed and FetchSGD at the same epsilon, by sensitivities that hold.

    python run_scripts/reproduce/table5.py --runs_dir RUNS [--dataset mnist] [--epsilon 1] [--seeds 3] [--size small]

Everything but the compressor is the same. See docs/research/compressors.md, variants.py, and `--help`.
"""

import variants
from variants import Variant


def compressors(base):
    """A row for each compressor; k, beta and c are the base's where a compressor has them."""
    del base
    return [Variant(name="TopAgg", published=0.7123),
            Variant(name="D2P-Fed", method="d2pfed", published=0.1424),
            Variant(name="FetchSGD", method="fetchsgd", published=0.6935)]


if __name__ == "__main__":
    variants.main(__doc__, "table5", compressors)
