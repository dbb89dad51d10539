"""What a reader sees before anything runs: help on one screen, a table of methods, a way out of every mistake."""

import json
import re
import subprocess
import sys

import pytest

from datalens_tf import cli
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.cli import parser
from datalens_tf.data.registry import known_datasets
from datalens_tf.methods.registry import config_class, config_classes, methods
from datalens_tf.options import PerformanceOptions
from datalens_tf.settings import declared

SCREEN = 45
NOT_FLAGS = {"image_shape", "num_classes", "insecure_noise_seed", "model_digest", "features_digest"}


@pytest.fixture(name="page")
def make_page(capsys, monkeypatch):
    """The help that a command line prints on a terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")

    def page(*words):
        with pytest.raises(SystemExit) as exit_info:
            cli.main([*words, "--help"])
        assert exit_info.value.code == 0
        return capsys.readouterr().out

    return page


@pytest.mark.parametrize("words", [[], *([name] for name in cli.COMMANDS)], ids=lambda words: " ".join(words) or "all")
def test_help_fits_on_a_screen(words, page):
    lines = page(*words).splitlines()
    assert lines[0].startswith(f"usage: datalens {' '.join(words)}".rstrip())
    assert 5 < len(lines) <= SCREEN and max(map(len, lines)) <= 110


def test_the_overview_names_every_command_method_and_kind_of_data(page):
    text = page()
    for name, (_, said) in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{said}$", text, re.MULTILINE)
    for name in (*methods(), *known_datasets()):
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name


def test_train_says_when_to_choose_which_method_and_data(page):
    text = page("train")
    shown = {name: about.choose_when for name, about in methods().items()} | known_datasets()
    for name, said in shown.items():
        assert f"  {name}" in text and said in " ".join(text.split()), name
    for flag in ("--method", "--dataset", "--epsilon", "--delta", "--preset", "--output_dir", "--resume"):
        assert f"\n  {flag}" in text


@pytest.mark.parametrize("method", sorted(methods()))
def test_a_method_has_exactly_its_settings_each_with_its_default_and_meaning(method, page):
    text = page("train", "--method", method)
    flat = " ".join(text.split())
    settings = {**declared(config_class(method)), **declared(PerformanceOptions)}
    for name, setting in settings.items():
        if name in NOT_FLAGS or name == "method":
            continue
        flag = f"no_{name}" if setting.default is True else name
        assert re.search(rf"^  --{flag}( [A-Z]+)?\s\s+\S", text, re.MULTILINE), name
        assert "".join(setting.help.split()) in "".join(text.split()), name
    defaults = re.findall(r"--(latent_dim) N [^(]*\(default: (\w+)\)", flat)
    assert defaults == [("latent_dim", str(config_class(method)().latent_dim))]
    others = {name for kind in config_classes().values() for name in declared(kind)} - set(settings)
    assert not [name for name in others if f"--{name} " in text]
    assert methods()[method].choose_when in flat


def test_what_is_on_by_default_can_be_switched_off():
    made = parser.Parser("datalens", "", [])
    parser.add_settings(made, config_class("datalens_plus"), ["mirrored", "share_covariance"])
    found = made.parse_args(["--no_mirrored", "--share_covariance"])
    assert (found.mirrored, found.share_covariance) == (False, True)
    assert not hasattr(made.parse_args([]), "mirrored")


@pytest.mark.parametrize("words, kind", [(["classify"], ClassifierConfig), (["pate-classify"], PateClassifierConfig)])
def test_a_classifier_has_its_settings(words, kind, page):
    text = page(*words)
    for name in set(declared(kind)) - NOT_FLAGS - {"method", "sampling_probability"} - (
            {"adjacency"} if kind is PateClassifierConfig else set()):
        assert re.search(rf"^  --{name}( [A-Z]+)?\s\s+\S", text, re.MULTILINE), name


def test_settings_stand_in_groups(page):
    text = page("train", "--method=gs_wgan")
    heads = re.findall(r"^(\w[^:\n]*):", text, re.MULTILINE)
    assert heads[-6:] == ["data", "privacy budget", "mechanism", "discriminators", "generator",
                         "speed and memory, which change no result"]
    mechanism = text.split("\nmechanism")[1].split("\n\n")[0]
    assert "--clip_norm" in mechanism and "--latent_dim" not in mechanism


def test_the_methods_stand_in_a_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["methods"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("METHOD") and "CHOOSE THIS WHEN" in text.splitlines()[0]
    assert re.findall(r"^([a-z]\w+) ", text, re.MULTILINE) == sorted(methods())
    assert max(map(len, text.splitlines())) <= 100
    assert cli.main(["methods", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["choose_when"] for row in found} == {
        name: about.choose_when for name, about in methods().items()}


@pytest.mark.parametrize("words, said", [
    (["trian"], "Unknown command 'trian'. Did you mean train?"),
    (["train", "--output_dir=x", "--epsilom=1"], "Unknown flag --epsilom. Did you mean --epsilon?"),
    (["train", "--output=x"], "Unknown flag --output. Did you mean --output_dir?"),  # Before what is missing.
    (["train", "--eps=1"], "Unknown flag --eps. Did you mean --epsilon?"),  # Not one of absl's flags, as --helpful.
    (["train", "--output_dir=x", "--method=dp_mref"], "Did you mean dp_merf?"),
    (["train", "--output_dir=x", "--preset=minst"], "Did you mean mnist?"),
    (["train", "--output_dir=x", "--dataset=digist"], "Did you mean digits?"),
    (["train", "--output_dir=x", "--dataset=digits", "--noise=gausian"], "Did you mean gaussian?"),
    (["privacy", "--preset=mnist", "--accountant=gpd"], "'gpd' is not one of all, classic_rdp, rdp, pld, gdp."),
    (["evaluate", "--samples=x", "--metrics=utilty"], "Did you mean utility?"),
    (["classify", "--output_dir=x", "--dataset=digits", "--network=smal"], "Did you mean small?"),
    (["sample", "--output=x.npz"], "Missing --model: a run folder, or a SavedModel"),
    (["verify"], "Missing PATH: a run folder"),
    (["train", "--output_dir=x", "stray"], "Unexpected 'stray'"),
    (["train", "--output_dir=x", "--dataset=digits", "--method=dp_gan", "--top_k=3"],
     "choose a --method that has it: datalens, fetchsgd."),
    (["train"], "Missing --output_dir: the run folder."),
    (["train", "--output_dir"], "--output_dir: expected one argument"),
    (["train", "--method"], "--method: expected one argument"),
    ([], "Missing COMMAND: one of the commands"), (["sample"], "Missing --model, --output."),
])
def test_a_mistake_is_one_line_with_a_way_out(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and said in err, err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words, flag", [
    (["sample", "run", "--output=x.npz"], "--model"), (["evaluate", "run"], "--samples"),
    (["export", "run"], "--run_dir"), (["convert", "run"], "--model"), (["privacy", "run"], "--ledger"),
    (["audit", "run"], "--run_dir")])
def test_a_run_without_its_flag_is_understood(words, flag, capsys, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2 and f"Did you mean {flag} run?" in capsys.readouterr().err


def test_nothing_is_meant_by_what_is_far_from_everything(capsys):
    assert cli.main(["xyzzy"]) == 2
    assert "Did you mean" not in capsys.readouterr().err
    assert cli.main(["train", "--output_dir=x", "--method=" + 10_000 * "d"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_resuming_reads_the_flags_of_the_runs_own_method(tmp_path):
    (tmp_path / "config.json").write_text(config_class("dp_merf")().to_json())
    _, args = cli.parse(["train", "--resume", f"--output_dir={tmp_path}", "--num_features=8"])
    assert args.num_features == 8 and not hasattr(args, "method")


HEAVY = ("tensorflow", "keras", "scipy", "dp_accounting", "PIL", "sklearn", "numpy", "mpmath", "ray", "requests")


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["train", "--help"],
                                   ["train", "--method=dp_merf", "--help"], ["train", "--method=datalens", "--help"],
                                   ["methods"], ["evaluate", "--help"], ["classify", "--help"], ["trian"],
                                   ["train", "--output_dir=x", "--method=dp_gan", "--top_k=3"]])
def test_help_and_mistakes_load_nothing_that_takes_seconds(words):
    """Measured in modules, not in seconds, which depend on the machine."""
    code = ("import sys\nfrom datalens_tf import cli\n"
            f"try: cli.main({words!r})\nexcept SystemExit: pass\n"
            f"loaded = sorted(set({HEAVY!r}) & set(sys.modules))\nassert not loaded, loaded")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr


def test_accounting_does_not_load_tensorflow():
    code = ("import sys; from datalens_tf import cli\n"
            "assert cli.main(['privacy', '--preset=mnist']) == 0 and 'tensorflow' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)
