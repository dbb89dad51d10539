"""Ray actors that are asked together, replaced when they are lost, and asked again."""

import collections
import contextlib
import os
import pathlib
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from typing import Any

from datalens_tf import _files
from datalens_tf._text import first_line
from datalens_tf.errors import (
    ActorError,
    BudgetExhaustedError,
    CheckpointError,
    DataError,
    DataLensError,
    InvalidArgumentError,
    LedgerError,
)
from datalens_tf.options import PerformanceOptions

# Errors that speak of settings, budgets and files of the run, and not of records.
_OF_THE_PROTOCOL = (ActorError, BudgetExhaustedError, CheckpointError, InvalidArgumentError, LedgerError)
_NOTES = ".cache/datalens_tf/owner_{number}.log"
_REPLACEMENTS = 3  # Of one actor in one round, before training stops.

# What actors are told: method and arguments, by number of actor.
_Request = Callable[[int], tuple[str, tuple[Any, ...]]]
_Recipe = Callable[[int], list[tuple[str, tuple[Any, ...]]]]


def _nth(recipe: _Recipe, position: int) -> _Request:
    """One request of a recipe."""
    return lambda number: recipe(number)[position]


class Owner:
    """An owner's actor. What goes wrong with its records is told on its own machine, and not to the driver.

    Messages about data quote them: the largest value, a label, the name of a file. Nobody has paid for these.

    Args:
      kind: class of the actor.
      number, threads: as `kind` takes them.
    """

    def __init__(self, kind: type, number: int, threads: int):
        self._actor, self._number = kind(number, threads), number

    def answer(self, method: str, *arguments: Any) -> Any:
        """The actor's answer to a method.

        Raises:
          DataError: it cannot use its records.
          ActorError, BudgetExhaustedError, CheckpointError, InvalidArgumentError, LedgerError: as the method, where it
            is not the one that loads the records.
          RuntimeError: anything else went wrong.
        """
        try:
            return getattr(self._actor, method)(*arguments)
        except Exception as error:
            if method != "load" and isinstance(error, _OF_THE_PROTOCOL):
                raise
            told = traceback.format_exc()
        with contextlib.suppress(Exception):  # Whatever fails here would tell what it was to write.
            self._note(told)
        where = f"{_NOTES.format(number=self._number)} in its home folder says why"
        if method == "load":
            raise DataError(f"Owner {self._number} cannot use its data: {where}.")
        raise RuntimeError(f"owner {self._number} failed: {where}")

    def _note(self, told: str) -> None:
        """Writes an error where the owner finds it."""
        path = pathlib.Path.home() / _NOTES.format(number=self._number)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _files.atomic_write(path, told.encode("utf-8", "backslashreplace"))
        path.chmod(0o600)


class Actors:
    """Ray actors, each started by the same recipe whenever it is needed.

    Args:
      count: how many; None for one per machine, at least 2.
      options: distribute, num_threads, actor_gpus, actor_timeout_minutes.
      owners: whether each actor belongs on the machine that joined the cluster with the resource
        datalens_owner_NUMBER, if there are such machines.
      kind: class of the actors, which is called with an actor's number and its number of threads.

    Raises:
      ActorError: there is no such cluster.
      InvalidArgumentError: Ray is not installed.
    """

    def __init__(self, count: int | None, options: PerformanceOptions, owners: bool = False, *, kind: type):
        self._kind, self._owners = kind, owners
        self._ray, self._ours = _connected(count or 2, options)
        count = count or max(2, sum(node["Alive"] for node in self._ray.nodes()))
        self._threads, self._gpus = options.num_threads or 1, options.actor_gpus
        self._timeout = 60 * options.actor_timeout_minutes
        self._handles: list[Any] = [None] * count
        self._recipes: list[_Recipe] = []
        self._owned = owners and any(name.startswith("datalens_owner_") for name in self._ray.cluster_resources())

    def __len__(self) -> int:
        return len(self._handles)

    def start(self, recipe: _Recipe) -> list[Any]:
        """Adds a recipe to what a fresh actor is told, and tells all actors; returns their last answers.

        A recipe gives (method, arguments) pairs by number of actor. Whatever is raised, no actor is left behind.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._recipes.append(recipe)
            fresh = [number for number, handle in enumerate(self._handles) if handle is None]
            for number in fresh:
                self._handles[number] = self._spawn(number)
            answers: list[Any] = [None] * len(self)
            for position, _ in enumerate(recipe(0)):
                answers = self.ask(_nth(recipe, position))
            undo.pop_all()
        return answers

    def ask(self, request: _Request, check: Callable[[Any], None] = lambda answer: None,
            progress: Callable[[float], None] = lambda fraction: None) -> list[Any]:
        """Every actor's answer. An actor that dies or is silent for too long is replaced, and asked again.

        Args:
          request: method and arguments by number of actor.
          check: called with the last answer of a replaced actor's recipe, before the actor is asked again.
          progress: called with the fraction of actors that have answered.

        Raises:
          ActorError: an actor failed too often, or there is no room for one.
          DataLensError: an actor raised one.
        """
        answers: dict[int, Any] = {}
        losses: collections.Counter[int] = collections.Counter()
        while lost := self._round(request, answers, progress):
            losses.update(lost)
            for number in lost:
                if losses[number] > _REPLACEMENTS:
                    raise ActorError(f"Actor {number} died or was silent for {self._timeout / 60:g} minutes "
                                     f"{losses[number]} times in one round. Nothing is lost: see to its machine, then "
                                     "continue with --resume.")
                check(self._replace(number))
        return [answers[number] for number in range(len(self))]

    def ask_once(self, request: _Request, check: Callable[[Any], None]) -> list[Any] | None:
        """Like `ask`, but asks nobody again; returns None where an actor was lost and replaced."""
        answers: dict[int, Any] = {}
        lost = self._round(request, answers)
        for number in lost:
            check(self._replace(number))
        return None if lost else [answers[number] for number in range(len(self))]

    def ask_most(self, request: _Request) -> dict[int, Any]:
        """Like `ask`, but leaves out actors that fail too often; the others' answers by number.

        Raises:
          DataLensError: whatever an actor raised of these.
        """
        answers: dict[int, Any] = {}
        losses: collections.Counter[int] = collections.Counter()
        given_up: set[int] = set()
        while lost := self._round(request, answers, without=given_up, forgiving=True):
            losses.update(lost)
            for number in lost:
                given_up.add(number)
                if losses[number] <= _REPLACEMENTS:
                    with contextlib.suppress(ActorError, DataError):  # It cannot even be started, or load its data.
                        self._replace(number)
                        given_up.remove(number)
        return answers

    def _round(self, request: _Request, answers: dict[int, Any],
               progress: Callable[[float], None] = lambda fraction: None, without: Collection[int] = (),
               forgiving: bool = False) -> list[int]:
        """Asks the actors that have not answered, and adds their answers; returns the numbers of lost actors.

        Args:
          request, progress: see `ask`.
          answers: answers by number of actor.
          without: numbers of actors that are not asked.
          forgiving: whether an actor that fails with an error that is not ours counts as lost, too.
        """
        asked = {}
        for number in range(len(self)):
            if number not in answers and number not in without:
                method, arguments = request(number)
                asked[self._call(number, method, arguments)] = number
        for number, answer in self._answers(asked, forgiving):
            answers[number] = answer
            progress(len(answers) / len(self))
        return [number for number in asked.values() if number not in answers]

    def put(self, value: Any) -> Any:
        """Stores what all actors will read once per machine."""
        return self._ray.put(value)

    def close(self) -> None:
        """Ends the actors, and Ray itself where it was started for them."""
        for handle in self._handles:
            if handle is not None:
                self._ray.kill(handle)
        self._handles = [None] * len(self)
        if self._ours:
            self._ray.shutdown()

    def _answers(self, asked: dict[Any, int], forgiving: bool = False) -> Iterator[tuple[int, Any]]:
        """Yields (number, answer) of actors that answer in time; raises errors, but leaves lost actors out.

        Where it is `forgiving`, only our own errors are raised.
        """
        errors = self._ray.exceptions
        pending, deadline = list(asked), time.monotonic() + self._timeout
        while pending:
            done, pending = self._ray.wait(pending, timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                return
            try:
                yield asked[done[0]], self._ray.get(done[0])
            except errors.RayTaskError as error:
                if isinstance(error.cause, DataLensError):
                    raise error.cause from None
                if not forgiving:
                    raise ActorError(f"Actor {asked[done[0]]} failed: {error.cause!r}.") from error
            except (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError):
                pass

    def _call(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """Asks an actor; returns Ray's reference to the answer."""
        if self._owners:
            return self._handles[number].answer.remote(method, *arguments)
        return getattr(self._handles[number], method).remote(*arguments)

    def _spawn(self, number: int):
        """Starts a process somewhere in the cluster; an owner's process on the machine that was started as its own."""
        resources = {f"datalens_owner_{number}": 1} if self._owned else None
        actor = self._ray.remote(Owner if self._owners else self._kind).options(
            num_cpus=self._threads, num_gpus=self._gpus, resources=resources, max_restarts=0, max_task_retries=0)
        return actor.remote(*((self._kind,) if self._owners else ()), number, self._threads)

    def _replace(self, number: int) -> Any:
        """Starts an actor afresh; returns the last answer of its recipes, None if it died again."""
        self._ray.kill(self._handles[number])
        self._handles[number] = self._spawn(number)
        answer = None
        for recipe in self._recipes:
            for method, arguments in recipe(number):
                asked = {self._call(number, method, arguments): number}
                answer = dict(self._answers(asked)).get(number)
        return answer


def _connected(count: int, options: PerformanceOptions):
    """The ray module, connected, and whether the cluster is ours to shut down."""
    try:
        import ray
    except ImportError as error:
        raise InvalidArgumentError("Expected Ray for --distribute: install it with `pip install datalens_tf[ray]`."
                                   ) from error
    if ray.is_initialized():
        return ray, False
    quiet = dict(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        if options.distribute != "ray":
            ray.init(address=options.distribute, log_to_driver=False)
            return ray, True
        if "RAY_ADDRESS" in os.environ:
            ray.init(log_to_driver=False)
            return ray, True
        # As many CPUs as the actors want: on one machine they share what there is.
        ray.init(address="local", num_cpus=count * (options.num_threads or 1), **quiet)
        return ray, True
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ActorError(f"Cannot reach the Ray cluster {options.distribute!r}: {first_line(error)}") from error
