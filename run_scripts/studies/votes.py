"""What changes to DataLens' votes and to its training are worth, with few teachers and a large epsilon: a table.

    python run_scripts/studies/votes.py --output_dir OUT [--dataset mnist] [--variants NAME ...] [--seeds 0 1 2]
        [--as_at 1] [--num_teachers 400] [--records_per_teacher 15] [--pose 1.5:0.5:4]

Teachers are a tenth as many as in the preset for epsilon 1, or for that of `--as_at`. Each has as many records as there
and as much of the noise, so that votes are as hard to make out, at a larger epsilon, and a run takes minutes. A variant
that changes the sensitivity has noise in proportion to it, and one that changes the number of steps in proportion to
the root of that number. So all rows cost the same, except for `little_noise`, which shows what noise costs. The
classifier learns for 4 epochs from 20,000 images, as they are and with a warp, grain and a choice. It is tested on the
last 10,000 *training* records, which teachers never see. OUT keeps the runs; interrupted ones are continued.
"""

import argparse
import json
import math
import pathlib
import statistics

import dp_accounting
import numpy as np
from poses import drawn, with_pose
from vote_changes import changing

from datalens_tf.accounting import accountants
from datalens_tf.accounting.accountants import round_up
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.registry import load_dataset
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import config_from_json, preset, synthesizer
from datalens_tf.serving.export import load_generator
from datalens_tf.training.classifier import train_on_synthetic

VARIANTS: dict[str, dict[str, object]] = {
    "preset": {},
    "no_threshold": {"vote_threshold": None},
    "teacher_warp": {"teacher_warp": 1.0},
    "both": {"vote_threshold": None, "teacher_warp": 1.0},
    "longer_average": {"vote_threshold": None, "ema_decay": 0.97},
    "three_teacher_steps": {"vote_threshold": None, "teacher_steps": 3},
    "fast_student": {"vote_threshold": None, "student_learning_rate": 3e-3},
    "slow_student": {"vote_threshold": None, "student_learning_rate": 5e-4},
    "signs": {"quantization": "sign"},
    "clip_2e-6": {"clip": 2e-6},
    "all_coordinates": {"vote_threshold": None, "top_k": None},
    "few_coordinates": {"vote_threshold": None, "top_k": 50},
    "sixty_images": {"vote_threshold": None, "batch_size": 60},
    "five_images": {"vote_threshold": None, "batch_size": 5},
    "three_times_the_steps": {"vote_threshold": None},
    "slim_teachers": {"vote_threshold": None, "discriminator_filters": 16, "discriminator_units": 128},
    "slim_teachers_three_times": {"vote_threshold": None, "discriminator_filters": 16, "discriminator_units": 128},
    "float32": {"vote_threshold": None, "precision": "float32"},
    "short_second_moments": {"vote_threshold": None, "beta_2": 0.9},
    "pooled_votes": {"vote_threshold": None, "top_k": 50},
    "abstention": {"vote_threshold": None},
    "shared_latents": {"vote_threshold": None, "shared_latents": True},
    "little_noise": {"vote_threshold": None, "noise_stddev": 20.0},
}
THREE_TIMES_THE_STEPS = {"five_images", "three_times_the_steps", "slim_teachers_three_times"}
HELD_OUT = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", default="mnist", help="one that has a preset of DataLens")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME",
                        help=", ".join(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--num_teachers", type=int, default=400)
    parser.add_argument("--records_per_teacher", type=int, default=15)
    parser.add_argument("--as_at", type=float, default=1.0, help="epsilon of the preset")
    parser.add_argument("--num_steps", type=int, help="by default as many as the preset pays for")
    parser.add_argument("--pose", default="1.5:0.5:4", metavar="WARP:GRAIN:CHOICES", help="see poses.py")
    parser.add_argument("--num_images", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    records = load_dataset(args.dataset)
    print("| variant | epsilon | as they are | mean | posed | mean |\n|---|---|---|---|---|---|")
    for name in args.variants:
        with changing(name):
            found = [accuracies(trained(name, seed, records, args), records, seed, args) for seed in args.seeds]
        run = folder_of(name, args.seeds[0], args)
        epsilon = json.loads((run / "privacy.json").read_text(encoding="utf-8"))["epsilon"]
        columns = (f"{', '.join(f'{one:.4f}' for one in column)} | {statistics.mean(column):.4f}"
                   for column in zip(*found))
        print(f"| {name} | {round_up(epsilon)} | {' | '.join(columns)} |", flush=True)


def trained(name: str, seed: int, records: Dataset, args: argparse.Namespace) -> pathlib.Path:
    """The folder of a variant's run, which is trained if it is not yet; a run of other settings is refused."""
    folder = folder_of(name, seed, args)
    images, labels = trained_on(records, args)
    synthesizer("datalens")(settings(name, seed, records.image_shape, args), run_dir=folder).fit(
        images, labels, num_classes=records.num_classes)
    return folder


def trained_on(records: Dataset, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of the first records, as many as the teachers take; none of those that are held out."""
    count = args.num_teachers * args.records_per_teacher
    if count > len(records) - HELD_OUT:
        raise SystemExit(f"Expected num_teachers * records_per_teacher = {count} <= {len(records) - HELD_OUT}: of "
                         f"{len(records)} records, {HELD_OUT} are held out to test on. Take fewer.")
    return records.images[:count], records.labels[:count]


def folder_of(name: str, seed: int, args: argparse.Namespace) -> pathlib.Path:
    """Where a variant's run is."""
    output: pathlib.Path = args.output_dir
    return output / f"{args.dataset}_eps{args.as_at:g}_{name}_seed{seed}"


def settings(name: str, seed: int, image_shape: tuple[int, int, int], args: argparse.Namespace) -> DataLensConfig:
    """The preset with few teachers and a variant's changes, its noise scaled to its sensitivity and steps."""
    usual = preset(args.dataset, args.as_at)
    num_steps = args.num_steps or accountants.max_steps(
        release(usual), args.as_at, usual.delta, usual.accountant, usual.adjacency)
    times = 3 if name in THREE_TIMES_THE_STEPS else 1
    usual = usual.replace(num_teachers=args.num_teachers, seed=seed, num_steps=times * num_steps, output_contrast=2.0,
                          noise_stddev=usual.noise_stddev * args.num_teachers / usual.num_teachers)
    config = usual.replace(image_shape=image_shape, **VARIANTS[name])
    if "noise_stddev" not in VARIANTS[name]:
        scale = math.sqrt(times) * sensitivity(config) / sensitivity(usual)
        config = config.replace(noise_stddev=usual.noise_stddev * scale)
    epsilon = accountants.epsilon(release(config), config.num_steps, config.delta, config.accountant, config.adjacency)
    return config.replace(epsilon=math.ceil(100 * epsilon) / 100)


def release(config: DataLensConfig) -> dp_accounting.DpEvent:
    """The event of one step."""
    return dp_accounting.GaussianDpEvent(config.noise_scale / sensitivity(config))


def sensitivity(config: DataLensConfig) -> float:
    """How much one record changes the votes on a batch, at most."""
    return config.mechanism().l2_sensitivity(config.batch_size)


def accuracies(folder: pathlib.Path, records: Dataset, seed: int, args: argparse.Namespace) -> tuple[float, float]:
    """Accuracies with images as they are, and with the pose."""
    generator, test = load_generator(folder / "generator"), slice(-HELD_OUT, None)
    found = []
    config = config_from_json((folder / "config.json").read_text(encoding="utf-8"))
    for pose in ("0:0:1", args.pose):
        images, labels = drawn(generator, with_pose(config, pose), args.num_images, seed)
        found.append(train_on_synthetic(images, labels, records.images[test], records.labels[test],
                                        records.num_classes, epochs=args.epochs, seed=seed).accuracy)
    return found[0], found[1]


if __name__ == "__main__":
    main()
