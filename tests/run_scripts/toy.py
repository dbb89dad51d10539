"""Stands in for `python` in the scripts' environment: what they train is tiny, on the embedded digits.

    python toy.py SCRIPT.py ARGUMENT...
    python toy.py -m datalens_tf COMMAND FLAG...

Flags are appended to those of the script, which they override.
"""

import importlib
import os
import pathlib
import runpy
import sys

_GENERATOR = ["--dataset=digits", "--generator_filters=4", "--generator_units=8", "--epsilon=50"]
_TEACHERS = ["--num_teachers=8", "--teacher_batch_size=4", "--batch_size=4", "--warmup_teacher_steps=1",
             "--discriminator_filters=2", "--discriminator_units=4"]
_CRITICS = ["--batch_size=4", "--critic_batch_size=4", "--critic_steps=1", "--critic_filters=2", "--warmup_steps=1"]
# To calibrate the noise of so few samples takes minutes.
_NOISE = "--noise_multiplier=2"
_SAMPLED = ["--batch_size=8", "--num_steps=2", "--discriminator_filters=4", "--generator_batch_size=4", _NOISE]
TRAIN = {
    "datalens": [*_TEACHERS, "--top_k=8", "--noise_stddev=60", "--num_steps=2"],
    "d2pfed": [*_TEACHERS, "--num_steps=2"],
    "fetchsgd": [*_TEACHERS, "--num_steps=2", "--top_k=8", "--sketch_columns=16"],
    "g_pate": [*_TEACHERS, "--num_steps=2", "--projection_dim=4"],
    "pate_gan": [*_TEACHERS, "--num_steps=2"],
    "pate_cgan": [*_TEACHERS, "--num_steps=2"],
    "dp_merf": ["--num_features=20", "--fit_steps=2", "--batch_size=10"],
    "datalens_plus": ["--num_features=20", "--fit_steps=2", "--batch_size=10", "--selection_images=40",
                      "--selection_epochs=1"],
    "dp_gan": _SAMPLED,
    "dp_cgan": _SAMPLED,
    "dcgan": ["--batch_size=8", "--num_steps=2", "--discriminator_filters=4", "--discriminator_units=8",
              "--epsilon=none"],
    "gs_wgan": [*_CRITICS, "--num_discriminators=8", "--num_steps=2", _NOISE],
    "fed_gs_wgan": [*_CRITICS, "--num_users=8", "--num_steps=2"],
    "fed_avg_gan": [*_CRITICS[:-1], "--num_users=8", "--num_steps=2", _NOISE],
}
# Of programs that say in constants how much they do.
CONSTANTS = {
    "gs_wgan_sweep.py": {"BASE": {"num_discriminators": 4, "num_steps": 2, "noise_multiplier": 0.4},
                         "SWEPT": {"num_steps": (1,)}},
    "pate_classifier.py": {"QUERIES": {1.0: 40}, "NUM_TEACHERS": 50, "STUDENT_STEPS": 3,
                           "INDIVIDUALIZED": (("weighting", 50),)},
    "poses.py": {"FEW": 100},
    "serving.py": {"SIZES": (1, 2), "CLIENTS": (1, 2)},
    "votes.py": {"HELD_OUT": 100},
}
_CLASSIFY = ["--dataset=digits", "--batch_size=20", "--num_steps=2", "--noise_multiplier=3", "--epsilon=50"]


def smaller(command: str, *flags: str) -> list[str]:
    """A command line of the program at toy size."""
    words, values = [command, *flags], {}
    for flag, following in zip(flags, (*flags[1:], "")):
        name, given, value = flag.partition("=")
        values[name] = value if given else following
    if command == "train":
        words += [*_GENERATOR, *TRAIN[values.get("--method", "datalens")]]
    elif command == "classify":
        unwanted = ("--epsilon=none",) if "--epsilon=none" in words else ()
        words += [flag for flag in _CLASSIFY if not unwanted or flag.startswith(("--data", "--batch", "--num"))]
    elif command == "evaluate":
        words += ["--quick", "--epochs=1", "--metrics=utility"]
    return words


def main() -> int:
    """Runs what the arguments name; returns the exit status."""
    if sys.argv[1:3] == ["-m", "datalens_tf"]:
        from datalens_tf import cli

        return cli.main(smaller(*sys.argv[3:]))
    # Processes of Ray and of pools start by the name that scripts have, and need the real program.
    if "run_scripts" not in pathlib.Path(sys.argv[1]).parts:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    sys.executable = os.environ["TOY_PYTHON"]
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    name = os.path.basename(sys.argv[0])
    if name not in CONSTANTS:
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    module = importlib.import_module(name.removesuffix(".py"))
    for constant, value in CONSTANTS[name].items():
        setattr(module, constant, value)
    return module.main()


if __name__ == "__main__":
    sys.exit(main())
