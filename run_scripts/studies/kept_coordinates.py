"""What NormTopK leaves of each layer's gradient in a classifier of `datalens classify`. NOT PRIVATE.

    python run_scripts/studies/kept_coordinates.py --run_dir RUN [--ks 0.6 0.7 0.8] [--num_records 512]

Prints, for the classifier that was released and for each k: the share of the non-zero coordinates that a record keeps;
and per layer, the length of the mean of the clipped, compressed gradients, divided by that of the clipped gradients. 1
says that the layer learns as it does without compression, 0 that it does not learn at all.

The output reveals information about records, and no epsilon covers it.
"""

import argparse
import pathlib

import numpy as np
import tensorflow as tf

from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.classification.networks import PerExampleGradients
from datalens_tf.data.datasets import Dataset, to_unit
from datalens_tf.data.registry import load_dataset
from datalens_tf.mechanisms.norm_topk import NormTopKSum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run_dir", type=pathlib.Path, required=True)
    parser.add_argument("--ks", nargs="+", type=float, default=[0.6, 0.7, 0.8])
    parser.add_argument("--num_records", type=int, default=512, help="the first of the training split")
    args = parser.parse_args()
    config = ClassifierConfig.from_json((args.run_dir / "config.json").read_text())
    model = tf.keras.models.load_model(args.run_dir / "classifier.keras", compile=False)
    gradients = record_gradients(model, load_dataset(config.dataset), args.num_records)
    sizes = {}  # Sizes of the layers, in the order of the weights: `conv2d/kernel:0` is one of conv2d's.
    for weight in model.trainable_weights:
        layer = weight.name.split("/")[0]
        sizes[layer] = sizes.get(layer, 0) + weight.shape.num_elements()
    print(f"length of a record's gradient, median: {np.median(np.linalg.norm(gradients, axis=1)):.2f}")
    print("| k | coordinates kept | " + " | ".join(sizes) + " |\n" + "|---" * (2 + len(sizes)) + "|")
    for k in args.ks:
        share, lengths = kept(gradients, list(sizes.values()), config.clip_norm, k)
        print(f"| {k} | {100 * share:.1f} % | " + " | ".join(f"{length:.2f}" for length in lengths) + " |")


def record_gradients(model: tf.keras.Model, dataset: Dataset, count: int) -> np.ndarray:
    """Gradients [count, d] of the first records; dropout, if there is any, has one seed."""
    of = PerExampleGradients(model, (64, *dataset.image_shape))
    chosen, stream = np.resize(np.arange(count), -(-count // 64) * 64), np.random.default_rng(0)
    return np.concatenate([of(to_unit(dataset.images[part]), dataset.labels[part], *of.masks(stream, 64))
                           for part in np.split(chosen, len(chosen) // 64)])[:count]


def kept(gradients: np.ndarray, sizes: list[int], clip_norm: float, k: float) -> tuple[float, list[float]]:
    """The share of coordinates that is kept, and the relative length of the mean of what is kept, per layer.

    Args:
      gradients: float32 [n, d].
      sizes: sizes of the layers, one after the other; they add up to d.
      clip_norm, k: of the mechanism.
    """
    clipped, compressed = (np.stack([_dense(mechanism, gradient) for gradient in gradients]) for mechanism in (
        NormTopKSum(clip_norm=clip_norm, noise_multiplier=0.0, adjacency="add-or-remove-one", top_k_norm=part)
        for part in (1.0, k)))
    share = np.count_nonzero(compressed) / np.count_nonzero(clipped)
    parts = zip(*(np.split(x.mean(0), np.cumsum(sizes)[:-1]) for x in (compressed, clipped)))
    return share, [float(np.linalg.norm(small) / np.linalg.norm(whole)) for small, whole in parts]


def _dense(mechanism, gradient):
    positions, units = mechanism.compress(gradient)
    result = np.zeros_like(gradient)
    result[positions] = units
    return result


if __name__ == "__main__":
    main()
