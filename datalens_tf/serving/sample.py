"""Draws synthetic images from an ONNX generator, with numpy and onnxruntime alone.

    python sample.py GENERATOR.onnx --num_samples 100 --output images.npz [--labels 0,1] [--seed 7]

The file of images has an array x, uint8 [n, H, W, C], and an array y, the labels [n]. `--labels` are drawn in turn, by
default one image for each; without them it is 100 images of all classes. Without `--seed` every draw is a new one.
TensorFlow draws other images from the same seed. `datalens convert` writes this file beside the generator.
`--statement` prints its privacy statement.
"""

import argparse
import json
import os

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


def number_of(word, names, parser):
    """Number of the class that a word names; numbers count where no class has a number for its name."""
    if word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < len(names) and not any(name.isdecimal() for name in names):
        return int(word)
    return parser.error(f"expected --labels among {', '.join(names)}, got {word!r}")


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("--num_samples", type=int, help="by default one per label in --labels, else 100")
    parser.add_argument("--labels", help="names or numbers of classes, separated by commas; by default all, in turn")
    parser.add_argument("--seed", type=int, help="makes the draw reproducible")
    parser.add_argument("--output", default="images.npz", help="a new file")
    parser.add_argument("--statement", action="store_true", help="prints the privacy statement and draws nothing")
    args = parser.parse_args()
    try:
        session = onnxruntime.InferenceSession(args.model, providers=["CPUExecutionProvider"])
        about = described(session)
    except Exception as error:  # noqa: BLE001 (onnxruntime's own errors have no common type)
        parser.error(f"expected {args.model} to be an ONNX file that `datalens convert` wrote "
                     f"({(str(error) or repr(error)).splitlines()[0]:.200})")
    if args.statement:
        texts = session.get_modelmeta().custom_metadata_map
        print(texts.get("privacy.txt") or texts.get("privacy.json", "This generator has no privacy statement."))
        return
    wanted = list(range(about["num_classes"])) if args.labels is None else [
        number_of(word, about["class_names"], parser) for word in args.labels.split(",")]
    count = args.num_samples if args.num_samples is not None else 100 if args.labels is None else len(wanted)
    if count < 1 or (args.seed is not None and args.seed < 0):
        parser.error("expected --num_samples of at least 1, and --seed of at least 0")
    labels = np.resize(np.array(wanted, np.int64), count)
    try:
        with open(args.output, "xb") as file:
            try:
                np.savez(file, x=draw(args.model, labels, args.seed), y=labels)
            except BaseException:
                os.unlink(args.output)
                raise
    except FileExistsError:
        parser.error(f"expected --output={args.output} to be a new file")
    except (OSError, MemoryError) as error:
        parser.error(f"cannot write {count} images to --output={args.output}: {error or 'too many for the memory'}")
    print(f"{len(labels)} samples in {args.output}")


if __name__ == "__main__":
    main()
