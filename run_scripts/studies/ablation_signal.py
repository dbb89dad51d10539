"""How much of the teachers' mean gradient each variant of Table 7 passes on, at equal epsilon. NOT PRIVATE.

    python run_scripts/studies/ablation_signal.py [--preset mnist] [--epsilon 1] [--num_teachers 100] [--num_steps 40]

Accuracies of single runs scatter by more than the variants differ. So here the variants compress the *same* gradients,
of a small ensemble in training. It prints the cosine between what would be released and the mean of the clipped
gradients: over images, late steps and draws of the noise. Columns are noise levels, sigma / N of the full method. Each
variant gets that level times the ratio of its sensitivity to the full method's, and so the same epsilon.

The output reveals information about records, and no epsilon covers it.
"""

import argparse

import numpy as np
import tensorflow as tf
from convergence import watched

from datalens_tf import rng
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import preset

VARIANTS = {"full": {}, "no_top_k": {"top_k": None}, "no_stochastic_quantization": {"quantization": "sign"},
            "no_threshold": {"vote_threshold": None},
            "none_of_them": {"top_k": None, "quantization": "sign", "vote_threshold": None}}
NOISE_LEVELS = (0.0, 0.3, 0.6, 1.25, 2.5, 5.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist")
    parser.add_argument("--epsilon", type=float, choices=(1.0, 10.0), default=1.0, help="whose settings")
    parser.add_argument("--num_teachers", type=int, default=100)
    parser.add_argument("--num_steps", type=int, default=40, help="the later half is looked at")
    args = parser.parse_args()
    config, gradients = watched(preset(args.preset, args.epsilon), args.num_teachers, args.num_steps)
    gradients = gradients[args.num_steps // 2::4]
    print("| variant | " + " | ".join(f"sigma / N {level:g}" for level in NOISE_LEVELS) + " |")
    print("|---" * (1 + len(NOISE_LEVELS)) + "|")
    for name, changes in VARIANTS.items():
        row = cosines(config, changes, gradients)
        print(f"| {name} | " + " | ".join(f"{cosine:.3f}" for cosine in row) + " |", flush=True)


def cosines(config: DataLensConfig, changes: dict, gradients: np.ndarray, draws: int = 5) -> list[float]:
    """The mean cosine at each noise level, of gradients [steps, N, m, d]."""
    full = config.mechanism()
    variant = config.replace(**changes).mechanism()
    ratio = variant.l2_sensitivity(1) / full.l2_sensitivity(1)
    stream, found = np.random.default_rng(0), []
    for level in NOISE_LEVELS:
        of_level = []
        for step, teachers in enumerate(gradients):
            clip = config.clip or np.inf
            target = np.clip(teachers, -clip, clip).mean(0).astype(np.float64)
            seeds = tf.constant([rng.tensorflow_seed(0, "votes", step, index) for index in range(len(teachers))])
            votes = variant.compress(teachers, seeds).numpy().sum(0)
            for _ in range(draws):
                noisy = votes + stream.normal(0, max(level * ratio * len(teachers), 1e-9), votes.shape)
                of_level.append(cosine(variant.postprocess(noisy), target))
        found.append(float(np.mean(of_level)))
    return found


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Cosine over all numbers together; 0 where nothing is left."""
    length = np.linalg.norm(first) * np.linalg.norm(second)
    return float(np.sum(first * second) / length) if length else 0.0


if __name__ == "__main__":
    main()
