"""Throws broken, hostile and merely strange input at every entry point, and counts what happens.

    python run_scripts/studies/fuzz.py [--cases 10500] [--seed 0]

Each case must end in one of two ways: refused with one of this package's errors, which the command line shows as one
line with exit status 2 or 3; or accepted, and then the result is checked: arrays are what they must be, settings
survive a round trip, a damaged checkpoint gives the same bits as the whole one, a damaged ledger charges no less.
Anything else is a crash or a silent acceptance; both are printed with what reproduces them, and the exit status is 1.
"""

import argparse
import collections
import contextlib
import functools
import io
import json
import math
import os
import pathlib
import pickle
import sys
import tempfile
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from PIL import Image

from datalens_tf import cli
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.datasets import as_dataset
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataLensError
from datalens_tf.evaluation.comparison import read_result
from datalens_tf.evaluation.report import RunFacts
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import config_classes, config_from_json, preset
from datalens_tf.serving import export


class SilentAcceptance(Exception):
    """Something was accepted that must not be."""


def check(condition, what):
    if not condition:
        raise SilentAcceptance(what)


# Strange things.

def junk_number(random):
    return random.choice([0, 1, -1, 2, 7, 10**9, -10**9, 2**31, 2**63, 10**30, 0.5, -0.5, 1e-30, 5e-324, 1e300,
                          math.nan, math.inf, -math.inf, 1e-5, 100_000])


def junk(random, depth=0):
    """A JSON value."""
    kind = random.integers(9 if depth < 3 else 6)
    if kind < 2:
        value = junk_number(random)
        return float(value) if value % 1 else int(value) if math.isfinite(value) else float(value)
    if kind < 6:
        return [None, True, "", "mnist", "../../etc/passwd", "\x00", "gdp", "datalens", "a" * 300][random.integers(9)]
    if kind == 6:
        return [junk(random, depth + 1) for _ in range(random.integers(4))]
    if kind == 7:
        return {str(junk(random, 3)): junk(random, depth + 1) for _ in range(random.integers(4))}
    return "\ud800" if random.random() < 0.1 else -0.0


def mutate(random, data):
    """Bytes with a few changes: flipped, cut, repeated, inserted, replaced by something else altogether."""
    data = bytearray(data)
    for _ in range(1 + random.geometric(0.5)):
        kind, at = random.integers(8), int(random.integers(len(data) + 1))
        if kind <= 2 and data:
            data[at % len(data)] ^= 1 << random.integers(8)
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            del data[at:at + int(random.integers(1, 50))]
        elif kind == 5:
            data[at:at] = random.bytes(int(random.integers(1, 30)))
        elif kind == 6:
            data[at:at] = data[:int(random.integers(1, 200))]
        elif random.random() < 0.2:
            data = bytearray(random.choice([
                b"", b"\x00" * 100, b"[" * 100_000, b"{" * 50, b"9" * 5000, b"NaN", b"null", b'{"a":1}' * 3,
                b"\xff\xfe", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", pickle.dumps(print)]))
    return bytes(data)


def mutate_json(random, text):
    """Three times of five a valid JSON text with other values, names missing or added; else broken bytes."""
    if random.random() < 0.4:
        return mutate(random, text.encode())
    content = json.loads(text)
    if not isinstance(content, dict):
        return json.dumps(junk(random)).encode()
    for _ in range(random.geometric(0.6)):
        key = str(random.choice(list(content))) if content else "x"
        kind = random.integers(5)
        if kind < 3:
            content[key] = junk(random)
        elif kind == 3:
            content.pop(key, None)
        else:
            content[str(junk(random, 3))] = junk(random)
    return json.dumps(content).encode("utf-8", "surrogatepass")


def strange_array(random):
    """Arrays of odd shapes, types and values, or no arrays at all."""
    if random.random() < 0.1:
        return [None, "images", [[1, 2], [3]], {}, 3, [], object(), b"x"][random.integers(8)]
    shape = tuple(int(size) for size in random.choice([0, 1, 2, 3, 4, 5, 8, 12], random.integers(0, 6)))
    if random.random() < 0.4:  # The shape is right; only values and type are strange.
        shape = (int(random.integers(2, 7)), *random.choice([4, 8], 2), int(random.choice([1, 3])))
        shape = shape[:random.integers(3, 5)]
    dtype = [np.uint8, np.float32, np.float64, np.int64, np.int8, bool, np.complex64, object, "U3", np.float16, "M8[s]",
             np.uint64][random.integers(12)]
    values = random.uniform(-1, 2, shape) if random.random() < 0.5 else random.uniform(0, 1, shape)
    with np.errstate(all="ignore"):
        array = values.astype(dtype) if dtype not in (object, "M8[s]") else values.astype(int).astype(dtype)
    if array.dtype.kind in "fc" and array.size and random.random() < 0.3:
        array.flat[random.integers(array.size)] = random.choice([np.nan, np.inf, -np.inf, -0.001, 1.001, 255])
    return array


def good_images(random, count):
    return random.integers(0, 256, (count, 8, 8, 1)).astype(np.uint8)


def check_dataset(dataset, least_classes=2):
    """Checks what a data set promises."""
    images, labels = dataset.images, dataset.labels
    check(images.ndim == 4 and images.size and not images.shape[1] % 4 and not images.shape[2] % 4, f"{images.shape}")
    check(images.dtype == np.uint8 or images.dtype == np.float32, f"{images.dtype}")
    check(images.dtype == np.uint8 or bool(np.all((images >= 0) & (images <= 1))), "values outside [0, 1]")
    check(labels.dtype == np.int64 and labels.shape == (len(images),), f"{labels.dtype} {labels.shape}")
    check(0 <= labels.min() <= labels.max() < dataset.num_classes >= least_classes, "labels outside their classes")


# Entry points: each makes one case and runs it.

def images(random, folder):
    array = strange_array(random)
    count = len(array) if isinstance(array, np.ndarray) and array.ndim else 3
    dataset = as_dataset(array, np.arange(count) % 3)
    check_dataset(dataset)
    check(np.allclose(dataset.images.reshape(-1), np.asarray(array).reshape(-1)), "other images than given")


def labels(random, folder):
    array, classes = strange_array(random), [None, 2, 3, 10][random.integers(4)]
    if random.random() < 0.5:
        array = random.integers(-1 if random.random() < 0.2 else 0, 5, 6)
        array = array.astype(random.choice(["i8", "u1", "f4", "i2"]))
    dataset = as_dataset(good_images(random, 6), array, classes)
    check_dataset(dataset)
    check(np.array_equal(dataset.labels, array), "other labels than given")


def npz(random, folder):
    arrays = {"x": good_images(random, 6), "y": np.arange(6) % 3}
    if random.random() < 0.5:
        arrays[str(random.choice(["x", "y", "y_test", "z"]))] = strange_array(random)
    buffer, path = io.BytesIO(), folder / "data.npz"
    try:
        (np.savez if random.random() < 0.5 else np.savez_compressed)(buffer, **arrays)
    except Exception:  # noqa: BLE001 (not everything strange can be stored)
        np.savez(buffer, x=np.array([print], object))
    path.write_bytes(buffer.getvalue() if random.random() < 0.3 else mutate(random, buffer.getvalue()))
    dataset = load_dataset(f"npz:{path}")
    check_dataset(dataset)
    stored = np.load(path, allow_pickle=False)
    check(np.array_equal(dataset.labels, stored["y"]), "other labels than stored")


def picture(random):
    """The bytes of a picture, often broken."""
    size = (int(random.choice([8, 8, 8, 12, 3, 1])), 8)
    mode = str(random.choice(["L", "L", "L", "RGB", "RGBA", "P", "1", "I;16", "CMYK"]))
    kind = str(random.choice(["PNG", "JPEG", "GIF", "BMP", "TIFF"], p=[0.5, 0.3, 0.1, 0.05, 0.05]))
    buffer = io.BytesIO()
    try:
        Image.new(mode, size, int(random.integers(256)) if mode in ("L", "P") else 0).save(buffer, kind)
    except (OSError, ValueError):
        Image.new("L", (8, 8)).save(buffer, "PNG")
    data = buffer.getvalue()
    if random.random() < 0.05:  # A bomb: a header that promises 60,000 x 60,000 pixels.
        data = data[:16] + (60_000).to_bytes(4, "big") * 2 + data[24:]
    return data if random.random() < 0.5 else mutate(random, data)


def picture_folder(random, folder):
    root = folder / "pictures"
    good = io.BytesIO()
    Image.new("L", (8, 8), 7).save(good, "PNG")
    for name in ("a", "b", "c")[:random.integers(1, 4)]:
        (root / name).mkdir(parents=True)
        (root / name / f"{name}.png").write_bytes(good.getvalue())
    for _ in range(random.integers(1, 3)):
        place = root / str(random.choice(["a", "b", "train", "test", ".", ".hidden"]))
        place.mkdir(exist_ok=True)
        name = str(random.choice(["x.png", "x.jpg", "x.JPEG", "x.gif", "a.png", ".x.png", "x", "x.png.exe", "ü.png"]))
        if random.random() < 0.1 and not (place / name).exists():
            os.symlink(str(random.choice(["/dev/null", "/nonexistent", "..", "/etc/passwd"])), place / name)
        elif not (place / name).is_symlink():
            (place / name).write_bytes(picture(random))
    dataset = load_dataset(f"folder:{root}")
    check_dataset(dataset)
    base = root / "train" if (root / "train").is_dir() and (root / "test").is_dir() else root
    classes = sorted(place for place in base.iterdir() if place.is_dir() and not place.name.startswith("."))
    counts = [sum(not path.name.startswith(".") for path in place.iterdir()) for place in classes]
    check(np.bincount(dataset.labels, minlength=len(classes)).tolist() == counts, f"classes {dataset.labels} {counts}")


def declared_classes(random, folder):
    """A folder or table with `--classes`, and its neighbour, in which one record is of another class."""
    words = ["a", "b", "c", "10", "9", "ü", "a b", "CON", "-"]
    labels = [str(random.choice(words)) for _ in range(random.integers(1, 8))]
    others = labels.copy()
    moved = random.integers(len(labels))
    others[moved] = str(random.choice(words))
    declared = [str(word) for word in random.choice([*words, "", "\u202e", "a,b"], random.integers(1, 6))]
    in_a_table, found = random.random() < 0.5, []
    for name, classes in (("one", labels), ("other", others)):
        rows = ["file,label"]
        for number, label in enumerate(classes):
            place = pathlib.Path(name, "" if in_a_table else label, f"{number}.png")
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 10 + number).save(folder / place)
            rows.append(f"{number}.png,{label}")
        if in_a_table:
            (folder / name / "labels.csv").write_text("\n".join(rows), encoding="utf-8")
        found.append(load_dataset(f"folder:{folder / name}", classes=declared))
    for dataset, classes in zip(found, (labels, others)):
        check_dataset(dataset, least_classes=1)
        check(list(dataset.class_names) == declared and dataset.num_classes == len(declared), "other classes")
        usable = np.ones(len(dataset), bool) if dataset.usable is None else dataset.usable
        check(len(dataset) == len(classes) and usable.sum() == sum(label in declared for label in classes), "slots")
        check(not dataset.images[~usable].any(), "a record of an undeclared class is seen")
    changed = np.any([np.abs(found[0].images.astype(int) - found[1].images).any((1, 2, 3)),
                      found[0].labels != found[1].labels], 0)
    check(changed.sum() <= 1, "another record moved")


def config_json(random, folder):
    text = str(random.choice(CONFIG_TEXTS))
    config = config_from_json(mutate_json(random, text).decode("utf-8", "surrogateescape"))
    check(config_from_json(config.to_json()) == config, "settings do not survive a round trip")
    if config.adjacency != "none":
        check(0 < config.delta < 1 and config.epsilon > 0, "no privacy")
        for name in {"noise_stddev", "noise_multiplier", "top_k"} & set(json.loads(text)):
            check(getattr(config, name) is None or getattr(config, name) > 0, f"no privacy without {name}")


def model_metadata(random, folder):
    """A generator's metadata, and a draw from a generator whose metadata was believed."""
    source = pathlib.Path("checkpoints/mnist_eps1/generator/1")
    copy = folder / "1"
    (copy / "assets.extra").mkdir(parents=True)
    for path in source.iterdir():
        if path.name != "assets.extra":
            (copy / path.name).symlink_to(path.resolve())
    text = _cached(source / "assets.extra" / "model.json").decode()
    (copy / "assets.extra" / "model.json").write_bytes(mutate_json(random, text))
    metadata = export.read_metadata(copy)
    check(math.prod(metadata["image_shape"]) <= 2**22 and len(metadata["class_names"]) == metadata["num_classes"],
          f"{metadata}")
    if random.random() < 0.1:
        generator = export.load_generator(copy)
        check(generator.sample(np.zeros(2, int)).shape == (2, 28, 28, 1), "other images")


def make_ledger(folder, charges=4):
    import dp_accounting

    path = folder / "ledger.jsonl"
    event = dp_accounting.GaussianDpEvent(20.0)
    ledger = PrivacyLedger.create(path, epsilon=5.0, delta=1e-5, accountant="gdp", config_digest="x", step_event=event)
    for step in range(charges):
        ledger.spend(event, step=step)
    return path, ledger


def ledger_file(random, folder):
    path, ledger = make_ledger(folder)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    if random.random() < 0.3:
        number = int(random.integers(len(lines)))
        lines[number] = mutate_json(random, lines[number].decode()) + b"\n"
        changed = b"".join(lines)
    elif random.random() < 0.3:
        changed = b"".join(lines[i] for i in random.permutation(len(lines))[:random.integers(1, 6)])
    else:
        changed = mutate(random, whole)
    path.write_bytes(changed)
    read = PrivacyLedger.read(path) if random.random() < 0.5 else PrivacyLedger.open(path)
    # The loss of whole lines at the end cannot be noticed, except where a stored sum has no charge.
    kept = 0
    while kept < len(lines) and changed.startswith(b"".join(whole.splitlines(keepends=True)[:kept + 1])):
        kept += 1
    check(math.isfinite(read.spent()) and len(read.charges) >= max(0, kept - 1), "charges were lost")
    if not whole.startswith(changed.rstrip(b"\n")) or changed.count(b"\n") >= whole.count(b"\n"):
        check(read.spent() >= ledger.spent() or len(changed.splitlines()) < len(lines), "a charge became cheaper")


@functools.cache
def the_checkpoint():
    return Checkpoint()


class Checkpoint:
    """A snapshot of a small trained bank and student, to be damaged."""

    def __init__(self):
        from datalens_tf.options import PerformanceOptions
        from datalens_tf.training.trainer import Trainer

        self.config = SMALL
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        stream = np.random.default_rng(0)
        self.dataset = as_dataset(good_images(stream, 20), np.arange(20) % 3, 3, name="tiny")
        trainer = Trainer(self.config, self.dataset, self.folder, options=PerformanceOptions(checkpoint_minutes=0))
        student = trainer.run()
        self.bank = trainer._bank()
        self.student, self.ledger = student, trainer.ledger
        self.files = {path.relative_to(self.folder): path.read_bytes()
                      for path in (self.folder / "private" / "checkpoints").rglob("*") if path.is_file()}
        self.releases = {path.relative_to(self.folder): path.read_bytes()
                         for path in (self.folder / "private" / "releases").glob("*.npz")}
        self.reached = self.saver().restore(), self.bank.iterations
        self.state = self.bits()

    def saver(self, folder=None):
        from datalens_tf.training.checkpoint import Saver

        return Saver((folder or self.folder) / "private" / "checkpoints", self.bank, self.student, self.ledger, 1e9)

    def bits(self):
        arrays = [*self.student.state().values(), *(block for index in range(self.bank.num_arrays)
                                                    for block in self.bank.blocks(index))]
        return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)

    def write(self, folder, files, changed):
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(changed.get(name, data))


def snapshot(random, folder):
    checkpoint = the_checkpoint()
    name = list(checkpoint.files)[random.integers(len(checkpoint.files))]
    data = checkpoint.files[name]
    changed = mutate_json(random, data.decode()) if name.suffix == ".json" else mutate(random, data)
    checkpoint.write(folder, checkpoint.files, {name: changed})
    step = checkpoint.saver(folder).restore()
    check(checkpoint.bits() == checkpoint.state, f"other state than saved: {name}")
    check((step, checkpoint.bank.iterations) == checkpoint.reached, "another step than saved")


def stored_sum(random, folder):
    from datalens_tf.training.checkpoint import ReleaseStore

    checkpoint = the_checkpoint()
    name = list(checkpoint.releases)[random.integers(len(checkpoint.releases))]
    checkpoint.write(folder, checkpoint.releases, {name: mutate(random, checkpoint.releases[name])})
    step = int(name.stem)
    store, whole = (ReleaseStore(place / "private" / "releases") for place in (folder, checkpoint.folder))
    check(np.array_equal(store.load(step), whole.load(step)), "another sum than stored")
    check(store.charge(step) == whole.charge(step), "another charge than stored")


def run_folder(random, folder):
    """The shareable files of a run, as evaluation and comparison read them."""
    run = pathlib.Path("checkpoints") / str(random.choice(["mnist_eps1", "fashion_mnist_eps1"]))
    for name in ("config.json", "privacy.json", "privacy.txt", "metrics.json"):
        (folder / name).write_bytes(_cached(run / name))
    name = str(random.choice(["config.json", "privacy.json", "metrics.json"]))
    (folder / name).write_bytes(mutate_json(random, _cached(folder / name, fresh=True).decode()))
    if random.random() < 0.5:
        RunFacts.read(folder)
    else:
        row = read_result(folder)
        check(0 <= row.epsilon < math.inf and 0 <= row.delta <= 1 and 0 <= row.accuracy <= 1, f"{row}")
        check(all(map(math.isfinite, row.others.values())), f"{row.others}")


_FILES = {}


def _cached(path, fresh=False):
    if fresh or path not in _FILES:
        data = path.read_bytes()
        if fresh:
            return data
        _FILES[path] = data
    return _FILES[path]


def command_line(random, folder):
    """Flags and values in any combination, through the program's own entry."""
    command = str(random.choice(["train", "sample", "evaluate", "compare", "privacy", "audit", "export", "nonsense",
                                 "--help", "--version", ""]))
    argv, flags = [command] if command else [], FLAGS.get(command, FLAGS["train"])
    for _ in range(random.integers(0, 6)):
        flag = str(random.choice(flags))
        value = str(junk(random, 3) if random.random() < 0.6 else random.choice(
            ["mnist", "digits", "1", "0.5", "npz:/nowhere", "folder:/nowhere", str(folder), str(folder / "new"), "none",
             "-1", "gdp", "all", "/dev/null/x", "utility", "1,2", "tfds:", "\u202e"]))
        argv += [f"{flag}={value}"] if random.random() < 0.7 else [flag, value] if random.random() < 0.8 else [flag]
    argv = [word.replace("\x00", "") for word in argv]
    before = sorted(folder.rglob("*"))
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(argv)
    except SystemExit as end:  # argparse's own, for usage and help.
        status = end.code
    text = err.getvalue()
    check("Traceback" not in text and "internal error" not in text, f"{argv}: {text[-300:]}")
    check(status in (0, 2, 3), f"{argv}: exit status {status}: {text[-300:]}")
    if status:
        said = [line for line in text.splitlines() if line.startswith("datalens")]
        check(len(said) == 1, f"{argv}: {text[-300:]!r}")
        if command != "train":  # Training may have made its folder before it looked at the data.
            left = [path for path in sorted(folder.rglob("*")) if path not in before and path.is_file()]
            check(not left, f"{argv}: left {left}")
        raise DataLensError("refused")


ENTRY_POINTS = (images, labels, npz, picture_folder, config_json, model_metadata, ledger_file, snapshot, stored_sum,
                run_folder, command_line, declared_classes)
CONFIG_TEXTS = [preset("mnist", None if kind.adjacency == "none" else 1.0, method).to_json()
                for method, kind in config_classes().items()]
SMALL = DataLensConfig(
    dataset="tiny", image_shape=(8, 8, 1), num_classes=3, num_teachers=4, batch_size=3, top_k=5, noise_stddev=40.0,
    vote_threshold=0.5, latent_dim=4, teacher_batch_size=3, warmup_teacher_steps=1, teacher_steps=1,
    discriminator_filters=4, discriminator_units=8, generator_filters=4, generator_units=8, epsilon=1e3, num_steps=3)
FLAGS = {}


def collect_flags():
    """Every command's flags, from the parser itself; of `train`, those of all methods."""
    for name in cli.COMMANDS:
        words = [["--method", method] for method in config_classes()] if name == "train" else [[]]
        FLAGS[name] = sorted({option for chosen in words for known in cli.command_parser(name, chosen)._actions
                              for option in known.option_strings if option.startswith("--") and option != "--debug"})


class Quick:
    """Refuses where the command line would begin to train or to attack for minutes: only the flags are tested."""

    def __call__(self, *args, **kwargs):
        raise DataLensError("would begin now")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_500, help="of each entry point")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=None, help="name of one entry point")
    args = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    collect_flags()
    from datalens_tf.auditing import families
    from datalens_tf.training import trainer

    failures, total = [], 0
    print(f"{'entry point':<16}{'cases':>8}{'refused':>9}{'accepted':>9}{'failures':>9}{'seconds':>9}", flush=True)
    with tempfile.TemporaryDirectory() as scratch, open(os.devnull, "w", encoding="utf-8") as nowhere:
        for entry in ENTRY_POINTS:
            if args.only not in (None, entry.__name__):
                continue
            counts, start = collections.Counter(), time.monotonic()
            for case in range(args.cases):
                random = np.random.default_rng([args.seed, ENTRY_POINTS.index(entry), case])
                folder = pathlib.Path(scratch) / f"{entry.__name__}{case}"
                folder.mkdir()
                patched = contextlib.ExitStack()
                if entry is command_line:
                    patched.enter_context(replaced(trainer.Trainer, "run", Quick()))
                    patched.enter_context(replaced(families, "audit", Quick()))
                try:
                    with patched, contextlib.redirect_stderr(nowhere):
                        entry(random, folder)
                    counts["accepted"] += 1
                except DataLensError as error:
                    counts["refused"] += 1
                    if not str(error).strip():
                        failures.append((entry.__name__, case, "an error without words"))
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    counts["failures"] += 1
                    failures.append((entry.__name__, case, f"{type(error).__name__}: {str(error)[:300]}"))
                remove(folder)
            total += args.cases
            print(f"{entry.__name__:<16}{args.cases:>8}{counts['refused']:>9}{counts['accepted']:>9}"
                  f"{counts['failures']:>9}{time.monotonic() - start:>9.0f}", flush=True)
    for name, case, what in failures[:40]:
        print(f"FAILED {name}, seed {args.seed}, case {case}: {what}")
    print(f"{total} cases, {len(failures)} failures")
    return 1 if failures else 0


@contextlib.contextmanager
def replaced(owner, name, value):
    """Replaces an attribute for a while."""
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


def remove(folder):
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
