"""Draws synthetic images from an ONNX generator, with numpy and onnxruntime alone.

    python sample.py GENERATOR.onnx --num_samples 100 --output images.npz [--labels 0,1] [--seed 7]

The file of images has an array x, uint8 [n, H, W, C], and an array y, the labels [n]. `--labels` are drawn in turn; by
default it is all classes. Without `--seed` every draw is a new one. TensorFlow draws other images from the same seed.
`datalens convert` writes this file beside the generator, whose privacy statement `--statement` prints.
"""

import argparse
import json

import numpy as np
import onnxruntime

_CHUNK = 500  # images at once, which bounds memory


def draw(path, labels, seed=None):
    """Draws one image per label.

    Args:
      path: of the ONNX file.
      labels: integers from 0 on, as many as the generator has classes, [n].
      seed: of the latents; None for fresh ones.

    Returns:
      uint8 [n, H, W, C].
    """
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    about, stream = described(session), np.random.default_rng(seed)
    labels = np.asarray(labels, np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < about["num_classes"]:
        raise SystemExit(f"Expected labels from 0 to {about['num_classes'] - 1}, got {labels.min()} to {labels.max()}.")
    images = np.empty((len(labels), *about["image_shape"]), np.uint8)
    for start in range(0, len(labels), _CHUNK):
        chunk = labels[start:start + _CHUNK]
        shape = len(chunk), about["latent_dim"]
        normal = about["latent_distribution"] == "normal"
        latents = stream.standard_normal(shape, np.float32) if normal else stream.uniform(-1, 1, shape)
        (made,) = session.run(["images"], {"latents": latents.astype(np.float32), "labels": chunk})
        images[start:start + _CHUNK] = np.rint(255 * made)
    return images


def described(session):
    """Facts that the generator states: `image_shape`, `latent_dim`, `num_classes`, `class_names` and more."""
    return json.loads(session.get_modelmeta().custom_metadata_map["model.json"])


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("--num_samples", type=int, default=100)
    parser.add_argument("--labels", help="numbers of classes, separated by commas; by default all, in turn")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--output", default="images.npz")
    parser.add_argument("--statement", action="store_true", help="prints the privacy statement and draws nothing")
    args = parser.parse_args()
    session = onnxruntime.InferenceSession(args.model, providers=["CPUExecutionProvider"])
    if args.statement:
        texts = session.get_modelmeta().custom_metadata_map
        print(texts.get("privacy.txt") or texts.get("privacy.json", "This generator has no privacy statement."))
        return
    wanted = map(int, args.labels.split(",")) if args.labels else range(described(session)["num_classes"])
    labels = np.resize(np.fromiter(wanted, np.int64), args.num_samples)
    np.savez(args.output, x=draw(args.model, labels, args.seed), y=labels)
    print(f"{len(labels)} samples in {args.output}")


if __name__ == "__main__":
    main()
