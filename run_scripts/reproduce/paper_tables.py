"""The runs that the tables of the papers need, in the order in which the queue takes them.

A run is listed once, even if several tables show it. Grey data sets have three training seeds and one classifier per
generator; colour data sets have one seed. Colour runs have slim networks: those of the paper's size would need 99 to
137 GiB for their state.
"""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Iterable, Iterator

import dp_accounting
import table1
import table4
import table5
import table7
import variants
from cells import Cell
from table1 import PLUS

from datalens_tf.accounting import accountants
from datalens_tf.methods.registry import preset

PROJECT = pathlib.Path(__file__).resolve().parents[2]
GREY, COLOUR = ("mnist", "fashion_mnist"), ("celeba_gender", "celeba_hair", "places365")
_CIFAR = "tfds:cifar10_jpeg"
_FACES = COLOUR[0]
# A table of our own: DataLens+ calibrated to one record replaced, and to one added or removed.
ADJACENCY, ADDED = "adjacency", "made for one added or removed"
# Another: other methods on CIFAR-10.
PHOTOGRAPHS = "photographs"
# Another: DataLens+ at budgets below, between and beside the papers'.
OTHER_BUDGETS, _OTHERS = "budgets", (0.2, 0.5, 3.0, 5.0)
# Another: released generators, judged by protocols with other networks than the paper's.
NETWORKS, _JUDGES = "networks", {"residual": "by a residual network", "condensed": "by the protocol of condensed sets"}
# Another: judged as the DataLens paper judges, in a tenth of its epochs or in all of them.
AS_THE_PAPER, _EPOCHS = "paper", {"paper-short": "60 epochs of the paper's protocol",
                                  "paper": "600 epochs of the paper's protocol"}
SEEDS, BUDGETS, SMALL_BUDGETS = range(3), (1.0, 10.0), (0.2, 0.4, 0.6, 0.8)

# At N = 4,000, teachers of the grey presets would take 19 GiB of memory; with this limit they are on the disk.
_ON_DISK = ("--bank_memory_gb=4",)
SLIM = "slim networks"
_SLIM = {
    "datalens": ("--discriminator_filters=4", "--discriminator_units=16", "--generator_filters=32",
                 "--generator_units=256", *_ON_DISK),
    "pate_gan": ("--discriminator_filters=4", "--discriminator_units=16", *_ON_DISK),
    "g_pate": ("--discriminator_filters=4", "--discriminator_units=16", *_ON_DISK),
}
# Minutes of training on two cores: of grey pictures, and of colour ones with slim networks. Measured where
# docs/research/ has them, else a guess.
_MINUTES = {
    "dcgan": (9, 90), "gs_wgan": (28, 60), "pate_gan": (26, 60), "g_pate": (45, 60), "dp_gan": (10, 120),
    "dp_merf": (10, 30), "datalens": (80, 180), PLUS: (15, 45), "d2pfed": (80, 180), "fetchsgd": (80, 180)}
_MINUTES_OF_EVALUATION, _MINUTES_BY_LARGER_NETWORKS = 12, 60
_MINUTES_AS_THE_PAPER = {"paper-short": 25, "paper": 240}  # On one core.
HEADLINE = (PLUS, "dp_merf", "dp_gan", "datalens")  # In README.

# Limits of training in colour, in minutes.
_CAP, _CAP_OF_OTHERS = 180.0, 60.0

# Tables 4, 5 and 7 with a tenth of the teachers and the paper's noise for each teacher: sigma / N = 5,000 / 4,000.
TEACHERS, STEPS = 400, 150

# Public warp, grain and choice of DataLens' exported images, as docs/research/datalens.md chose them.
POSED = "posed"
# DataLens with the best votes that docs/research/datalens.md found.
BEST_VOTES, SHARED = "votes", "shared latents, no threshold"
POSES = {"mnist": ("--output_warp=1.5", "--output_grain=0.5", "--output_choices=4"),
         "fashion_mnist": ("--output_warp=0.75", "--output_grain=0.8", "--output_choices=4")}


@functools.cache
def cells() -> tuple[Cell, ...]:
    """All runs: those without training, those least likely to change, DataLens last, and colour after grey."""
    grey = (*_grey("dcgan", "gs_wgan", "pate_gan", "g_pate"), *_grey("dp_gan", "dp_merf"), *_grey("datalens", PLUS))
    return (*_posed_checkpoints(), *_released_as_the_paper_judges("paper-short"), *grey, *_as_the_paper_judges(grey),
            *_best_votes(), *_photographs(), *_adjacencies(), *_other_budgets(), *_judged_checkpoints(),
            *_released_as_the_paper_judges("paper"), *_variants(), *_colour())


def has_few_teachers(cell: Cell) -> bool:
    """Whether a cell is of Tables 4, 5 and 7, with a tenth of the teachers."""
    return bool({"4", "5", "7"} & set(cell.tables))


def estimate(cell: Cell) -> float:
    """Estimate of the minutes that training and evaluation take, for where no such run is recorded."""
    if NETWORKS in cell.tables:
        return _MINUTES_BY_LARGER_NETWORKS
    if AS_THE_PAPER in cell.tables:
        return next(minutes for name, minutes in _MINUTES_AS_THE_PAPER.items() if f"--protocol={name}" in cell.evaluate)
    training: float = 0 if cell.export_of else _MINUTES[cell.method][cell.dataset not in GREY]
    if has_few_teachers(cell):
        training *= 0.15
    return min(training, cell.max_minutes or training) + _MINUTES_OF_EVALUATION


def _grey(*methods: str) -> Iterator[Cell]:
    """Tables 1 and 2 on grey data, all with the first seed first, so that each cell has a number early."""
    for seed in SEEDS:
        for dataset in GREY:
            for method in methods:
                flags = _ON_DISK if method == "datalens" else ()
                for epsilon in (None,) if method == "dcgan" else BUDGETS:
                    tables = ("1", "2") if epsilon == 1 else ("1",)
                    yield table1.cell(method, dataset, epsilon, seed, flags=flags,
                                      tables=(*tables, ADJACENCY, OTHER_BUDGETS) if method == PLUS else tables)
                if method in ("dp_gan", "dp_merf"):
                    for epsilon in SMALL_BUDGETS:
                        yield table1.cell(method, dataset, epsilon, seed, tables=("2",))
                if method == "datalens":
                    for epsilon in SMALL_BUDGETS:
                        yield _earlier(dataset, epsilon, seed)
                    for epsilon in BUDGETS:
                        yield _posed(dataset, epsilon, seed, f"{method}_{dataset}_eps{epsilon:g}_seed{seed}")


def _adjacencies() -> Iterator[Cell]:
    """Runs of the table of adjacencies that `_grey` lacks. Their bounds are the well-known numbers of records."""
    for seed in SEEDS:
        for dataset, bound in (*((name, 60_000) for name in GREY), (_CIFAR, 50_000)):
            for epsilon in BUDGETS:
                known = dataclasses.replace(table1.cell(PLUS, dataset, epsilon, seed, tables=(ADJACENCY,)),
                                            evaluate=("--metrics=utility", "--seeds=1"))
                if dataset == _CIFAR:
                    known = _without_preset(known)
                    yield known
                yield _added(known, bound)


def _photographs() -> Iterator[Cell]:
    """Two baselines of README on the photographs that the papers do not have."""
    for method in ("dp_merf", "dp_gan"):
        for epsilon in BUDGETS:
            yield _without_preset(table1.cell(method, _CIFAR, epsilon, SEEDS[0], tables=(PHOTOGRAPHS,)))


def _without_preset(cell: Cell) -> Cell:
    """The same run of data that no preset is for."""
    return dataclasses.replace(
        cell, name=cell.name.replace(":", "_"),
        train=(*(f"--dataset={cell.dataset}" if flag.startswith("--preset") else flag for flag in cell.train),
               "--delta=1e-5"))


def _added(replaced: Cell, bound: int) -> Cell:
    """The same run, calibrated to one record added or removed. `bound` on their number is public."""
    return dataclasses.replace(
        replaced, name=f"added_{replaced.name}", variant=ADDED, tables=(ADJACENCY,),
        evaluate=("--metrics=utility", "--seeds=1"),
        train=(*replaced.train, "--adjacency=add-or-remove-one", f"--records_at_most={bound}"))


def _other_budgets() -> Iterator[Cell]:
    """DataLens+ on grey data, at budgets that the papers do not have."""
    for epsilon in reversed(_OTHERS):
        for dataset in GREY:
            yield dataclasses.replace(table1.cell(PLUS, dataset, epsilon, SEEDS[0], tables=(OTHER_BUDGETS,)),
                                      evaluate=("--metrics=utility", "--seeds=1"))


def _earlier(dataset: str, epsilon: float, seed: int) -> Cell:
    """DataLens as it was when it had spent less, from the stored releases of its run at epsilon 1."""
    method = "datalens"
    return Cell(
        name=f"{method}_{dataset}_eps{epsilon:g}_seed{seed}", tables=("2",), method=method, dataset=dataset,
        epsilon=epsilon, seed=seed, export_of=f"{method}_{dataset}_eps1_seed{seed}",
        evaluate=(f"--dataset={dataset}", "--metrics=utility", "--seeds=1"))


def _posed(dataset: str, epsilon: float, seed: int, run: str, classifiers: int = 1, variant: str = POSED) -> Cell:
    """A DataLens run's generator, whose exported images are moved, have grain, and are chosen among several."""
    return Cell(
        name=f"posed_{run.rpartition('/')[2]}", tables=("1",), method="datalens", dataset=dataset, epsilon=epsilon,
        seed=seed, variant=variant, export_of=run, export=POSES[dataset],
        evaluate=(f"--dataset={dataset}", "--metrics=utility", f"--seeds={classifiers}"))


def _best_votes() -> Iterator[Cell]:
    """DataLens whose teachers learn from the latents that they vote on, and whose student follows all of the votes."""
    for epsilon in BUDGETS:
        for dataset in GREY:
            usual = table1.cell("datalens", dataset, epsilon, SEEDS[0], tables=(BEST_VOTES,), variant=SHARED,
                                flags=(*_ON_DISK, "--shared_latents", "--vote_threshold=none"))
            shared = dataclasses.replace(usual, name=f"shared_{usual.name}")
            yield shared
            yield dataclasses.replace(_posed(dataset, epsilon, SEEDS[0], shared.name, variant=f"{SHARED}, {POSED}"),
                                      tables=(BEST_VOTES,))


def _posed_checkpoints() -> Iterator[Cell]:
    """The released generators of DataLens, with as many classifiers as measured them before."""
    for dataset in GREY:
        run = f"checkpoints/{dataset}_eps1"
        yield _posed(dataset, 1.0, 0, run, classifiers=3, variant=f"{run}, {POSED}")


def _released_as_the_paper_judges(protocol: str) -> Iterator[Cell]:
    """The released generators of DataLens, as they were trained and posed."""
    for dataset in GREY:
        run = f"checkpoints/{dataset}_eps1"
        trained = _posed(dataset, 1.0, 0, run, variant=f"{run}, {POSED}")
        for cell in (trained, dataclasses.replace(trained, name=f"released_{dataset}_eps1", export=(), variant=run)):
            yield _judged(cell, protocol)


def _as_the_paper_judges(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Table 1 for the first seed."""
    for cell in cells:
        if "1" in cell.tables and cell.seed == SEEDS[0]:
            yield _judged(cell, "paper-short")


def _judged(cell: Cell, protocol: str) -> Cell:
    """A run's generator, or what another cell exports of one, by the paper's protocol."""
    return dataclasses.replace(
        cell, name=f"{protocol.replace('-', '_')}_{cell.name}", tables=(AS_THE_PAPER,), train=(),
        variant=", ".join(filter(None, (cell.variant, _EPOCHS[protocol]))), export_of=cell.export_of or cell.name,
        evaluate=(f"--dataset={cell.dataset}", "--metrics=utility", f"--protocol={protocol}", "--seeds=1"))


def _judged_checkpoints() -> Iterator[Cell]:
    """The released generators of DataLens+ for photographs, then the others, by other networks than the paper's."""
    for protocol, variant in _JUDGES.items():
        for dataset, name in ((_CIFAR, "cifar10"), *((grey, grey) for grey in reversed(GREY))):
            for epsilon in BUDGETS:
                run = f"checkpoints/{name}_plus_eps{epsilon:g}"
                config = json.loads((PROJECT / run / "config.json").read_text())
                yield Cell(
                    name=f"{protocol}_{name}_plus_eps{epsilon:g}", tables=(NETWORKS,), method=PLUS, dataset=dataset,
                    epsilon=epsilon, seed=config["seed"], variant=variant, export_of=run,
                    evaluate=(f"--dataset={dataset}", "--metrics=utility", f"--protocol={protocol}", "--seeds=1"))


def _variants() -> Iterator[Cell]:
    """Tables 4, 5 and 7; the paper's own settings, which all three have, are trained once."""
    known: dict[tuple[str, ...], Cell] = {}
    for seed in SEEDS:
        for dataset in GREY:
            base = preset(dataset, 1.0)
            sensitivity = 2 * math.sqrt(base.top_k * base.batch_size)
            multiplier = base.noise_stddev * TEACHERS / base.num_teachers / sensitivity
            epsilon = accountants.epsilon(dp_accounting.GaussianDpEvent(multiplier), STEPS, base.delta, base.accountant,
                                          base.adjacency)
            # Rounded up, so that a run that is calibrated to it can be charged in full.
            base = base.replace(num_teachers=TEACHERS, num_steps=STEPS, epsilon=math.ceil(100 * epsilon) / 100)
            for table, rows in (("4", table4.sweeps), ("5", table5.compressors), ("7", table7.ablations)):
                for variant in rows(base):
                    cell = variants.cell(base, variant, seed, (28, 28, 1))
                    cell = known.get(cell.train, cell)
                    known[cell.train] = dataclasses.replace(cell, tables=(*cell.tables, table))
    yield from known.values()


def _colour() -> Iterator[Cell]:
    """Tables 1 and 3 in colour, and faces for one record added or removed."""
    for dataset in COLOUR:
        for method in ("dcgan", "dp_gan", "dp_merf", "gs_wgan", "pate_gan", "g_pate", "datalens", PLUS):
            budgets: tuple[float | None, ...] = BUDGETS
            if method == "dcgan":
                budgets = (None,)
            elif method in ("gs_wgan", "pate_gan", "g_pate"):
                budgets = BUDGETS[1:]
            for epsilon in budgets:
                faces = (method, dataset) == (PLUS, _FACES)
                replaced = table1.cell(
                    method, dataset, epsilon, 0, flags=_SLIM.get(method, ()),
                    tables=("1", ADJACENCY) if faces else ("1",), variant=SLIM if method in _SLIM else "",
                    max_minutes=_CAP_OF_OTHERS if budgets == BUDGETS[1:] else _CAP)
                yield replaced
                if faces:
                    yield _added(replaced, 50_000)
