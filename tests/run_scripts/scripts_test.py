"""Every script runs, at toy size: see `toy.py`."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = ROOT / "run_scripts"
TOY = pathlib.Path(__file__).with_name("toy.py")

# Script -> command lines. `{tmp}` is a folder for what is written. What users do not run is no slow test, but a study.
TABLE = ["--dataset", "digits", "--epsilon", "10", "--size", "small", "--seeds", "1", "--variants"]
COMMANDS = {
    "baseline.sh": [["dcgan", "digits", "none"]],
    "ray_local.sh": [[]],
    "frontier.sh": [["--datasets", "digits", "--epsilons", "10", "--seeds", "1", "--classifiers", "1"]],
    "reproduce/table1.sh": [["--help"]],  # frontier.sh calls the same program.
    "reproduce/all.sh": [["--only", "dp_merf_mnist_eps1_seed0"]],
    "reproduce/table4.sh": [["--help"]],
    "reproduce/table5.sh": [[*TABLE, "D2P-Fed"]],
    "reproduce/table7.sh": [["--help"]],
    "reproduce/tables8to10.sh": [["8", "--epsilons", "1", "--ks", "0.8", "--seeds", "1", "--dataset", "digits", "--",
                                  "--network", "large"]],
    "reproduce/cifar10.sh": [["digits", "1", "10"]],
    "benchmarks/before_and_after.py": [["--older", str(ROOT), "--method", "dp_merf", "--datasets", "digits",
                                         "--records", "300", "--keep", "{tmp}"]],
    "benchmarks/distributed_rounds.py": [["--repeats", "1", "--actors", "1"]],
    "benchmarks/large_banks.py": [["--teachers", "4", "--folder", "{tmp}"]],
    "benchmarks/load_pictures.py": [["--count", "20", "--side", "64"]],
    "benchmarks/mechanisms.py": [["--repeats", "1", "--teachers_share", "0.002"]],
    "benchmarks/noise.py": [["--repeats", "1"]],
    "benchmarks/serving.py": [["--repeats", "1", "--num_images", "10", "--seconds", "1"]],
    "benchmarks/sharded_sums.py": [["--counts", "40", "--workers", "1", "--files", "2", "--plot",
                                    "{tmp}/growth.png"]],
    "benchmarks/training_speed.py": [["--teachers", "4", "--repeats", "1"]],
    "studies/poses.py": [["--runs", str(ROOT / "checkpoints/mnist_eps1"), "--poses", "1.5:0.15:1", "--num_images", "50",
                          "--epochs", "1", "--split", "train"]],
    "studies/votes.py": [["--dataset", "digits", "--output_dir", "{tmp}", "--variants", "all_coordinates", "--seeds",
                          "0", "--num_teachers", "4", "--records_per_teacher", "9", "--num_steps", "2", "--pose",
                          "1.5:0.15:1", "--num_images", "50", "--epochs", "1"]],
    "studies/figure2.py": [["--num_teachers", "4", "--num_steps", "2", "--output_dir", "{tmp}"]],
    "studies/gs_wgan_sweep.py": [["--dataset", "digits", "--output_dir", "{tmp}"]],
    "studies/pate_classifier.py": [["--dataset", "digits", "--output_dir", "{tmp}"]],
}
# What one does, the others do. The first is run where its run is released.
PRESETS = ("mnist", "fashion_mnist", "cifar10", "celeba_gender", "celeba_hair", "places365")
# They run in CI or in a test of their own.
ELSEWHERE = {"_common.sh", "quickstart.sh", "own_pictures.sh", "test.sh", "serve.sh", "release.sh",
             "reproduce/cells.py", "reproduce/variants.py", "reproduce/paper_tables.py"}


@pytest.fixture(name="environment")
def fixture_environment(tmp_path, python):
    """A folder that scripts take for their virtual environment, in which everything is installed."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    for name, words in (("python", f"{TOY}"), ("datalens", f"{TOY} -m datalens_tf")):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {python} {words} "$@"\n')
        path.chmod(0o755)
    for extra in ("", "_eval", "_ray,eval"):
        (tmp_path / "venv" / f".datalens_installed{extra}").touch()
    (tmp_path / "runs").mkdir()
    return os.environ | {
        "DATALENS_VENV": str(tmp_path / "venv"), "DATALENS_RUNS": str(tmp_path / "runs"), "PYTHONPATH": str(ROOT),
        "TOY_PYTHON": str(folder / "python"), "DATALENS_CACHE": str(tmp_path / "cache")}


def run(environment, script, *words):
    """Runs a script to its end; returns what it printed."""
    words = [word.format(tmp=environment["DATALENS_RUNS"]) for word in words]
    program = ["bash"] if script.suffix == ".sh" else [environment["TOY_PYTHON"]]
    done = subprocess.run([*program, str(script), *words], env=environment, cwd=environment["DATALENS_RUNS"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout


@pytest.mark.parametrize("script,words", [
    pytest.param(script, words, marks=pytest.mark.study if script.startswith(("benchmarks/", "studies/"))
                 else pytest.mark.slow)
    for script, lines in COMMANDS.items() for words in lines],
    ids=lambda value: value if isinstance(value, str) else "_".join(value[:1]))
def test_a_script_runs(script, words, environment):
    printed = run(environment, SCRIPTS / script, *words)
    assert printed.strip()


@pytest.mark.slow
def test_a_finished_run_is_released(environment, tmp_path):
    run(environment, SCRIPTS / "mnist.sh", "10")
    project = tmp_path / "project"
    (project / "run_scripts").mkdir(parents=True)
    (project / "checkpoints").mkdir()
    shutil.copy(SCRIPTS / "release.sh", project / "run_scripts")
    folder = next(pathlib.Path(environment["DATALENS_RUNS"]).glob("mnist_eps*"))
    run(environment, project / "run_scripts" / "release.sh", str(folder), "mnist_toy")
    from datalens_tf.auditing.verification import verify

    assert all(check.passed for check in verify(project / "checkpoints" / "mnist_toy"))


def test_every_script_is_run():
    """Here, or in CI, or in a test of its own."""
    scripts = {str(path.relative_to(SCRIPTS)) for path in SCRIPTS.rglob("*.*") if path.suffix == ".sh"
               or (path.suffix == ".py" and not path.with_suffix(".sh").exists())}
    tested = {f"{path.parent.name}/{path.name.removesuffix('_test.py')}.py"
              for path in pathlib.Path(__file__).parent.rglob("*_test.py")}
    assert not sorted(scripts - set(COMMANDS) - {f"{name}.sh" for name in PRESETS} - ELSEWHERE - tested)


def test_the_scripts_of_the_presets_are_one_script():
    texts = ((SCRIPTS / f"{name}.sh").read_text().replace(name, "NAME") for name in PRESETS)
    commands = {tuple(line for line in text.splitlines() if not line.startswith("#")) for text in texts}
    assert len(commands) == 1 and 'run "NAME_eps$epsilon" --preset NAME --epsilon "$epsilon" "${@:2}"' in commands.pop()
