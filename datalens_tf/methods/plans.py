"""The way of a run, from a request to a finished run folder, for the command line and for Python.

A `Request` becomes a `Plan` (a method, all its settings, the data), and `train` turns the plan into a run folder.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epy

from datalens_tf import _text, _validate
from datalens_tf.config import MethodConfig, VotingConfig
from datalens_tf.data import shards
from datalens_tf.errors import CheckpointError, DataError, InvalidArgumentError
from datalens_tf.facts import DataFacts
from datalens_tf.methods import registry, runs
from datalens_tf.options import PerformanceOptions
from datalens_tf.planning import advice
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.accounting import delta as deltas
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.methods import base
    from datalens_tf.training import callbacks as training_callbacks
    from datalens_tf.training import distributed, run_folder, sum_owners
    from datalens_tf.training import shards as file_shards

AUTO = "auto"  # A delta that follows from the number of records.
# Settings that, where they are None, are filled in from the data or the budget.
_RESOLVED = {"image_shape", "num_classes", "noise_multiplier", "noise_stddev", "num_users", "sampling_probability"}


def usual_delta(dataset: str | None, num_records: int) -> float:
    """Delta where none is given: the preset's for data that have a preset, else `deltas.automatic`.

    Args:
      dataset: name of the data.
      num_records: public number of records, or public bound on it.
    """
    if dataset in {made for made, _ in registry.presets()}:
        return float(registry.preset(str(dataset)).delta)
    return deltas.automatic(num_records)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a run; everything left open follows from public facts about the data.

    Attributes:
      method: name of the method; None for the default method of presets where `preset` is given, else for the method
        that suits the data best.
      preset: data set whose settings are wanted; None for the settings made for `dataset`, if there are any.
      given: settings by name, `dataset` among them where there is one. `delta` may be `AUTO`.
      data_name: public name of the data; None for the name of its file or folder.
      data_dir: folder of TensorFlow Datasets; None takes `TFDS_DATA_DIR`.
      pictures: how pictures become images; None for the defaults of their kind.
      records: the data, where already loaded; None loads them.
      test_dataset: real records to test on after training; None for those that are held out, or lie beside the data.
    """

    method: str | None = None
    preset: str | None = None
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_name: str | None = None
    data_dir: str | None = None
    pictures: datasets.Pictures | None = None
    records: datasets.Dataset | None = None
    test_dataset: str | None = None

    @property
    def settings_of(self) -> str | None:
        """The data set whose settings are wanted."""
        return self.preset or self.given.get("dataset")

    def pictures_for(self, config: MethodConfig) -> datasets.Pictures:
        """Choices about pictures in a run with these settings."""
        asked = dataclasses.replace(self.pictures or datasets.Pictures(), skip_unreadable=config.skip_unreadable,
                                    bits=config.picture_bits)
        return asked.fitting(config.image_shape, config.num_classes)

    def load(self, config: MethodConfig, place: str) -> datasets.Dataset:
        """The records of a run with these settings."""
        if self.records is not None:
            return self.records
        return data_registry.load_dataset(place, data_dir=self.data_dir, classes=config.classes,
                                          pictures=self.pictures_for(config), unit=config.unit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A method's settings and the data that it trains on.

    Attributes:
      config: settings of the run.
      place: place of the data.
      dataset: the data, without what is held out; None where owners keep them, or where they are in several files.
      request: the request that led to the plan.
      chosen: line that says which method was taken and why; None where the request named it.
      warnings: lines that say that users are made up, and that the images will be noise, where that is so.
      resumes: whether the plan continues a run.
      held_out: records that the settings hold out of the data; None for none.
    """

    config: MethodConfig
    place: str
    dataset: datasets.Dataset | None
    request: Request
    chosen: str | None = None
    warnings: tuple[str, ...] = ()
    resumes: bool = False
    held_out: datasets.Dataset | None = None

    @property
    def sources(self) -> dict[str, str]:
        """Places of the data on this machine, as the private folder keeps them."""
        folder, test = self.request.data_dir, self.request.test_dataset
        found = {"dataset": self.place, "data_dir": folder,
                 "test_dataset": None if test is None else data_registry.located(test)}
        if folder is not None and os.path.isdir(folder):
            found["data_dir"] = os.path.abspath(folder)
        return {name: place for name, place in found.items() if place is not None}


def planned(request: Request) -> Plan:
    """Plans a new run: its method, settings and data.

    Raises:
      InvalidArgumentError: from the settings.
      DataError: from the data, or the records are too few for so many teachers.
    """
    given, named = dict(request.given), request.method or (None if request.preset is None else registry.DEFAULT)
    if request.settings_of is None:
        raise InvalidArgumentError("Missing --dataset: name the data, for example --dataset mnist.")
    kinds = registry.having(given) if named is None else {named: registry.config_class(named)}
    if named is not None:
        _refuse_other_methods(given, named)
    if shards.has_shards(str(request.settings_of)):
        kinds = {name: kind for name, kind in kinds.items() if kind.OF_SUMS}
        _validate.require(bool(kinds), "dataset", request.settings_of,
                          f"to be one file: {named} does no mere adding up")
        _validate.require(request.data_name is None, "data_name", request.data_name, "to be none for several files")
    delta = given.pop("delta", None)
    checked = given | ({} if delta in (None, AUTO) else {"delta": delta})
    sound = _accepting(request, kinds, checked)  # Mistakes are reported before data is loaded.
    place = sound.dataset if request.records is not None else data_registry.located(sound.dataset)
    name = data_registry.public_name(place, request.data_name)
    if "{owner}" in sound.dataset and not runs.has_owners(sound):
        raise InvalidArgumentError(f"Missing --num_owners: {{owner}} in --dataset {request.settings_of} stands for an "
                                   "owner's number, so say how many owners there are.")
    if runs.is_elsewhere(sound):
        _validate.require(sound.holdout == 0, "holdout", sound.holdout,
                          "to be 0 for data in several files, of which none is held out")
        return Plan(config=sound.replace(dataset=name), place=place, dataset=None, request=request)
    dataset, held_out = datasets.hold_out(request.load(sound, place), sound.holdout)
    known = sound.known_records(dataset.num_units)  # Where the number is private, nothing below may use it.
    facts = DataFacts(num_records=known, image_shape=dataset.image_shape, num_classes=dataset.num_classes,
                      num_slots=dataset.num_slots, unit=dataset.unit)
    chosen = None
    if named is None:
        choice = registry.best(facts, _epsilon(request, next(iter(kinds.values()))), given)
        named, chosen = choice.method, describe(choice, facts)
    delta = usual_delta(request.settings_of, known) if delta is None else delta
    given["delta"] = deltas.automatic(known) if delta == AUTO else delta
    config = fresh_config(request, registry.config_class(named), given, facts)
    try:  # Refuses settings that do not fit such images.
        config.replace(image_shape=facts.image_shape, num_classes=facts.num_classes)
    except InvalidArgumentError as error:
        way_out = "" if request.preset is None else f" Leave out --preset {request.preset}, which is for other images."
        raise InvalidArgumentError(f"{error}{way_out}") from error
    _check_teachers(config, facts, given)
    return Plan(config=config.replace(dataset=name), place=place, dataset=dataset, request=request, chosen=chosen,
                warnings=tuple(filter(None, (_dealt_users(config, dataset), _noise(config, facts)))), held_out=held_out)


def resumed(request: Request, folder: pathlib.Path) -> Plan:
    """Plans to continue the run in a folder.

    Raises:
      CheckpointError: the request has other settings or data than the run.
      DataError: from the data.
    """
    stored = runs.stored_config(folder)
    sources = runs.read_sources(folder)
    request = dataclasses.replace(request, data_dir=request.data_dir or sources.get("data_dir"),
                                  test_dataset=request.test_dataset or sources.get("test_dataset"))
    given = dict(request.given)
    wanted: Any = stored
    if given.get("delta") == AUTO:  # The run has it as a number.
        del given["delta"]
    if request.method not in (None, stored.method):
        wanted = registry.config_class(str(request.method))()
    elif request.preset is not None and request.preset in _own_presets(type(stored)):
        wanted = preset_config(request.preset, stored.method, given).replace(**given)
    else:
        wanted = stored.replace(**given)
    place, name = str(given.get("dataset")), str(given.get("dataset"))
    if request.records is None:
        place, name = runs.data_of_run(folder, stored.dataset, given.get("dataset", request.preset), request.data_name)
    wanted = wanted.replace(dataset=name)
    for field in dataclasses.fields(stored):
        mine, theirs = getattr(wanted, field.name, None), getattr(stored, field.name)
        # Settings that the data and the budget decide are in the stored settings only.
        if mine != theirs and not (field.name in _RESOLVED and mine is None):
            raise CheckpointError(f"{folder} was trained with {field.name}={theirs!r}, not {mine!r}: resume with the "
                                  "same settings (--resume alone takes them), or choose another --output_dir.")
    dataset, held_out = None, None
    if not runs.is_elsewhere(stored):
        dataset, held_out = datasets.hold_out(request.load(stored, place), stored.holdout)
    return Plan(config=stored, place=place, dataset=dataset, request=request, resumes=True, held_out=held_out)


def testing_records(plan: Plan) -> datasets.Dataset | None:
    """Real records to test the images of a plan's run on; None where there are none, or owners keep the data.

    They are the records that the settings hold out, else those of `test_dataset`, else the test split that lies beside
    the data in its folder or file.

    Raises:
      DataError: from the data.
      InvalidArgumentError: the data to test on are those to train on.
    """
    place, request = plan.request.test_dataset, plan.request
    if plan.dataset is None:
        return None
    if plan.held_out is not None:
        return dataclasses.replace(datasets.usable_only(plan.held_out), name=plan.config.dataset)
    if place is not None and data_registry.located(place) == plan.place and not data_registry.has_test(plan.place):
        raise InvalidArgumentError(f"Expected --test_dataset={place} to be other records than those to train on. Name "
                                   "others, or let --holdout 0.1 hold a tenth of them out.")
    if place is None and (request.records is not None or not data_registry.has_test_beside(plan.place)):
        return None
    place = plan.place if place is None else data_registry.located(place)
    pictures = dataclasses.replace(request.pictures or datasets.Pictures(),
                                   skip_unreadable=plan.config.skip_unreadable, bits=plan.config.picture_bits)
    if data_registry.decodes_pictures(place):
        pictures = pictures.fitting(plan.dataset.image_shape, plan.dataset.num_classes)
    loaded = load_test(place, request.data_dir, plan.config.classes, pictures, trained_on=plan.place)
    name = plan.config.dataset if place == plan.place else _text.without_folders(place)
    return dataclasses.replace(loaded, name=name)


def load_test(place: str, data_dir: str | None, classes: Sequence[str] | None, pictures: datasets.Pictures, *,
              trained_on: str) -> datasets.Dataset:
    """The test split of data; all of the data if they have no such split and the run was not trained on them.

    Args:
      place: place of the data.
      data_dir: folder of TensorFlow Datasets.
      classes: the declared classes; None for none.
      pictures: how pictures become images.
      trained_on: place of the run's own data.
    """
    split = "test" if place == trained_on or data_registry.has_test(place) else "train"
    return datasets.usable_only(data_registry.load_dataset(
        place, data_dir=data_dir, split=split, classes=classes, pictures=pictures))


def create(plan: Plan, folder: pathlib.Path) -> run_folder.RunFolder:
    """Makes the run folder of a plan; its private part says where the data are, and which files are no pictures.

    Raises:
      DataLensError: the operating system refuses.
    """
    files = run_folder.RunFolder(folder)
    files.create()
    if not plan.resumes:
        runs.write_sources(folder, plan.sources)
    if plan.dataset is not None and plan.config.skip_unreadable:
        runs.write_unreadable(folder, plan.dataset)
    return files


def train(plan: Plan, folder: pathlib.Path, *, options: PerformanceOptions = PerformanceOptions(),
          callbacks: Sequence[training_callbacks.Callback] = (),
          on_begin: Callable[[base.RunSynthesizer[Any]], None] = lambda synthesizer: None) -> base.RunSynthesizer[Any]:
    """Trains by a plan in a folder that `create` made, or continues there; leaves everything that a run has.

    Args:
      plan: plan of a new run, or of the run in the folder.
      folder: the run folder.
      options: options that change speed only and that `check_options` accepts; by default one thread per core.
      callbacks: told about training, in addition to the run's own logs.
      on_begin: is given the synthesizer that trains, which can be asked to stop.

    Raises:
      TrainingInterrupted: somebody asked it to stop.
      DataLensError: see `RunSynthesizer.fit_dataset`.
    """
    config, files = plan.config, run_folder.RunFolder(folder)
    if options.distribute is None:
        options = options.replace(num_threads=options.num_threads or os.cpu_count())
    synthesizer = registry.synthesizer(config.method)(
        config, run_dir=folder, options=options,
        callbacks=[*callbacks, training_callbacks.TensorBoard(files.logs),
                   training_callbacks.PrivateLog(files.private_log)])
    dataset: Any
    if runs.has_owners(config):
        join: Any = distributed.Owners if isinstance(config, VotingConfig) else sum_owners.SumOwners.by_ray
        dataset = join(config.replace(dataset=plan.place), options, plan.request.data_dir,
                       plan.request.pictures_for(config))
        dataset.name = config.dataset
    elif plan.dataset is None:
        dataset = file_shards.Shards(config.replace(dataset=plan.place), options, plan.request.data_dir,
                                     plan.request.pictures_for(config))
        dataset.name = config.dataset
    else:
        dataset = dataclasses.replace(_validate.known("dataset", plan.dataset), name=config.dataset)
    on_begin(synthesizer)
    synthesizer.fit_dataset(dataset)
    runs.write_sources(folder, plan.sources)  # The same records may have moved.
    return synthesizer


def check_options(config: MethodConfig, options: PerformanceOptions) -> None:
    """Raises InvalidArgumentError where a method cannot train in the processes that the options ask for."""
    if options.distribute is not None and not (config.CAN_DISTRIBUTE or runs.is_elsewhere(config)):
        files = " with data in one file or folder" if config.OF_SUMS else ""
        raise InvalidArgumentError(f"--distribute is not available: {config.method} runs in one process{files}. Leave "
                                   "out --distribute" + (", or name several files, as in --dataset 'npz:{0..7}.npz'."
                                                         if config.OF_SUMS else "."))
    if options.distribute is None and runs.has_owners(config):
        raise InvalidArgumentError(f"Missing --distribute: with num_owners={config.num_owners} say where the "
                                   "owners are, for example --distribute ray.")
    if options.distribute is None and runs.is_elsewhere(config):
        raise InvalidArgumentError(f"Missing --distribute: say where {config.dataset} is read, for example "
                                   "--distribute ray.")


def describe(choice: registry.Choice, facts: DataFacts) -> str:
    """The line that says which method was taken for data, and why."""
    others = "" if choice.method == registry.DEFAULT else f" DataLens' teachers train by --method {registry.DEFAULT}."
    return f"method {choice.method} for {facts}: {choice.why}.{others}"


def _noise(config: MethodConfig, facts: DataFacts) -> str | None:
    """The line that warns if the images will be noise according to the table of measured runs; else None."""
    if config.epsilon is None:
        return None
    found = advice.expected(facts, config.epsilon, config.method)
    if found is None and advice.is_below_all(facts, config.epsilon, config.method):
        return (f"The images will be noise: {facts} at epsilon {config.epsilon:g} are less than was ever measured. "
                "`datalens advise` says what would help.")
    if found is None or not found.is_noise:
        return None
    return (f"Most of what the images show will be noise: expect at most {100 * found.high:.0f} % of what real "
            f"pictures teach a classifier, above guessing, from {facts} at epsilon {config.epsilon:g}. `datalens "
            "advise` says what would help.")


def _dealt_users(config: MethodConfig, dataset: datasets.Dataset) -> str | None:
    """The line that warns of made-up users, where nothing says whose the records are; else None."""
    users = getattr(config, "num_users", None) or 0
    if dataset.owners is not None or "num_users" not in declared(type(config)) or users > len(dataset):
        return None  # Too many users are refused.
    return ("The data do not say whose each record is, so records are dealt to made-up users, and the guarantee is "
            "about these. --unit names what says it.")


def no_setting_of(name: str, method: str) -> str | None:
    """Refusal of a setting that only other methods have; None where no method has it."""
    having = [other for other, kind in registry.config_classes().items() if name in declared(kind)]
    if method in having:
        return f"Expected no --{name}: it is a setting from Python alone."
    return (f"Expected no --{name}: it is no setting of the method {method}. Leave it out, or choose a --method that "
            f"has it: {', '.join(having)}." if having else None)


def _refuse_other_methods(given: Mapping[str, Any], method: str) -> None:
    for name in given:
        if name not in declared(registry.config_class(method)) and (refusal := no_setting_of(name, method)) is not None:
            raise InvalidArgumentError(refusal)


def _accepting(request: Request, kinds: Mapping[str, type[MethodConfig]], given: dict[str, Any]) -> MethodConfig:
    """Settings of the first method that accepts the given ones; if none does, raises the usual method's error."""
    errors = {}
    for name, kind in kinds.items():
        try:
            return fresh_config(request, kind, given)
        except InvalidArgumentError as error:
            errors[name] = error
    raise next((errors[name] for name in registry.usual() if name in errors), next(iter(errors.values())))


def _own_presets(kind: type[MethodConfig]) -> set[str]:
    """Data sets for which a method has settings of its own."""
    return {dataset for dataset, _ in kind.presets()}


def _smallest_budget(name: str | None) -> float:
    """The smallest budget that a data set has settings for, else 1."""
    return min((made for dataset, made in registry.presets() if dataset == name), default=1.0)


def _epsilon(request: Request, kind: type[MethodConfig]) -> float | None:
    """The budget that is given, else the smallest of the data set's preset, else 1."""
    default = None if kind.adjacency == "none" else _smallest_budget(request.settings_of)
    epsilon: float | None = request.given.get("epsilon", default)
    return epsilon


def preset_config(name: str, method: str, given: Mapping[str, Any]) -> MethodConfig:
    """The preset for the budget that is given, by default the smallest one that it was made for."""
    private = registry.config_class(method).adjacency != "none"
    return registry.preset(name, given.get("epsilon", _smallest_budget(name) if private else None), method)


def fresh_config(request: Request, kind: type[MethodConfig], given: Mapping[str, Any],
                 facts: DataFacts | None = None) -> MethodConfig:
    """The method's settings for the data set, else for data with these facts, if known; with the given ones."""
    name, epsilon = str(request.settings_of), _epsilon(request, kind)
    if name in _own_presets(kind) or (request.preset is not None and kind.presets()):
        return kind.preset(name, epsilon).replace(**given)
    given = {"dataset": name, **given}
    return kind.for_budget(epsilon).replace(**given) if facts is None else kind.for_data(facts, epsilon, given)


def _check_teachers(config: MethodConfig, facts: DataFacts, given: Mapping[str, Any]) -> None:
    """Refuses more teachers than there are records, with the flags that work."""
    slots = facts.num_slots or facts.num_records
    if not isinstance(config, VotingConfig) or config.num_teachers <= slots:
        return
    free = {name: value for name, value in given.items() if name not in ("num_teachers", "noise_stddev")}
    able = type(config).for_data(facts, config.epsilon, {**free, "delta": config.delta})
    flags = f"--num_teachers {able.num_teachers}"
    if able.noise_stddev is not None:
        flags += f" --noise_stddev {able.noise_stddev:g}"
    shared = "" if slots == facts.num_records else f", with {slots} different names of files"
    raise DataError(f"Expected at least one record per teacher, got num_records={facts.num_records} < num_teachers="
                    f"{config.num_teachers}{shared}. For so many take {flags}.")
