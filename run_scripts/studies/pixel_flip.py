"""A bug on users' devices, found without seeing a user's picture: the debugging task of federated generators.

    python run_scripts/studies/pixel_flip.py --output_dir OUT [--method fed_gs_wgan | fed_avg_gan] [--epsilon 10]

After Augenstein et al. 2020, and section 5.4 of GS-WGAN (Chen et al. 2020). MNIST is dealt to users. Half of them have
a new version of an app, and on most of their devices (80 %, as in the paper) it inverts pixels. Which version a user
has is public, what it does is not known. A generator is trained on the users of each version. Samples of both, side by
side (OUT/pixel_flip.png), show the bug; so does one number, the mean brightness of the samples' borders, which are
background.

Every user is in one of the two groups, so epsilon, which is printed for each group, is what both together cost a user.
In the papers, the groups are formed by a measurement on users' records, a classifier's accuracy. Who is in which group
then says something about records, which no epsilon here covers.

The same command continues what was interrupted. About four minutes of processor time;
docs/research/methods.md has results.
"""

import argparse
import json
import pathlib

import numpy as np

from datalens_tf import _files
from datalens_tf.accounting.accountants import round_up
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, as_dataset
from datalens_tf.data.image_grid import image_grid, png_bytes
from datalens_tf.data.partition import partition_indices
from datalens_tf.data.registry import load_dataset
from datalens_tf.methods.registry import config_class, synthesizer
from datalens_tf.training.progress import Progress

GENERATOR = {"generator_filters": 16, "generator_units": 64, "student_learning_rate": 3e-3, "ema_decay": 0.9}
SETTINGS = {
    "fed_gs_wgan": {"num_steps": 4, "users_per_round": 10, "warmup_steps": 20, "critic_filters": 8, "batch_size": 16,
                    "learning_rate": 1e-3},
    "fed_avg_gan": {"num_steps": 40, "sampling_probability": 0.2, "critic_filters": 8, "batch_size": 64,
                    "clip_norm": 0.5, "accountant": "rdp"}}
NUM_SAMPLES = 1000
BORDER = 2  # pixels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--method", choices=SETTINGS, default="fed_gs_wgan")
    parser.add_argument("--dataset", default="mnist", help="as for `datalens train`, with a dark background")
    parser.add_argument("--num_users", type=int, default=150, help="in each of the two groups")
    parser.add_argument("--num_records", type=int, default=60, help="of a user")
    parser.add_argument("--flipped", type=float, default=0.8, help="part of the new version's users who have the bug")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--num_steps", type=int, help="passes over the users, or rounds")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)

    settings = GENERATOR | SETTINGS[args.method] | ({"num_steps": args.num_steps} if args.num_steps else {})
    config = config_class(args.method)(dataset=args.dataset, epsilon=args.epsilon, **settings)
    groups = split(load_dataset(args.dataset), args.num_users, args.num_records, args.flipped)
    found, grids = {}, []
    for name, dataset in groups.items():
        found[name], grid = train(config, dataset, args.output_dir / f"{args.method}_{name}")
        grids.append(grid)
    _files.atomic_write(args.output_dir / "pixel_flip.json", json.dumps(found, indent=2) + "\n")
    _files.atomic_write(args.output_dir / "pixel_flip.png", png_bytes(side_by_side(grids), scale=2))
    for name, facts in found.items():
        print(f"{name} version: epsilon {facts['epsilon']} ({facts['adjacency']}), {facts['bytes_per_user']} bytes per "
              f"user, background {facts['background']:.3f}")
    print(args.output_dir / "pixel_flip.png")


def split(dataset: Dataset, num_users: int, num_records: int, flipped: float) -> dict[str, Dataset]:
    """Version of the app -> the records of its users.

    In the new version the first users have the bug, as many as `flipped` says.
    """
    users = partition_indices(len(dataset), 2 * num_users, seed=0)[:, :num_records]
    groups = {}
    for name, shards in zip(("old", "new"), np.split(users, 2)):
        images = dataset.images[shards]
        if name == "new":
            count = round(flipped * num_users)
            images[:count] = 255 - images[:count]
        groups[name] = as_dataset(
            images.reshape(-1, *dataset.image_shape), dataset.labels[shards].reshape(-1), dataset.num_classes,
            name=dataset.name, users=np.repeat(np.arange(num_users), shards.shape[1]))
    return groups


def train(config: MethodConfig, dataset: Dataset, folder: pathlib.Path) -> tuple[dict[str, object], np.ndarray]:
    """Trains on one group; returns what is printed, and a grid of samples [Y, 8, H, W, C]."""
    run = synthesizer(config.method)(config, run_dir=folder, callbacks=[Progress(config.epsilon)]).fit_dataset(dataset)
    statement, (images, _) = run.privacy_statement(), run.sample(NUM_SAMPLES, seed=0)
    traffic = statement["communication"]
    facts = {"epsilon": round_up(statement["epsilon"]), "delta": statement["delta"],
             "adjacency": statement["adjacency"], "communication": traffic,
             "bytes_per_user": (traffic["down_bytes"] + traffic["up_bytes"]) // statement["num_users"],
             "background": background(images)}
    rows = [run.sample(8, labels=[label] * 8, seed=label)[0] for label in range(dataset.num_classes)]
    return facts, np.stack(rows)


def background(images: np.ndarray) -> float:
    """Mean brightness, in [0, 1], of the frame of `BORDER` pixels around images uint8 [n, H, W, C]."""
    inside = images[:, BORDER:-BORDER, BORDER:-BORDER].astype(np.float64)
    frame = images.astype(np.float64).sum() - inside.sum()
    return frame / (images.size - inside.size) / 255


def side_by_side(grids: list[np.ndarray]) -> np.ndarray:
    """One picture of several grids, with a grey bar between them."""
    pictures = [image_grid(grid) for grid in grids]
    bar = np.full((pictures[0].shape[0], 4, pictures[0].shape[2]), 128, np.uint8)
    return np.concatenate([part for picture in pictures for part in (bar, picture)][1:], axis=1)


if __name__ == "__main__":
    main()
