"""Actors that are lost are replaced and asked again, and each failure costs what it must."""

import traceback
import types

import pytest

from datalens_tf.errors import ActorError, BudgetExhaustedError, CheckpointError, DataError, InvalidArgumentError
from datalens_tf.options import PerformanceOptions
from datalens_tf.training import actors


class FakeRay:
    """Stands for Ray: actors in this process that answer, die or fail as they are told, each time they are asked.

    Args:
      fates: by number of actor, what becomes of its requests in order: `dies`, `fails`, or an answer; the last one of
        all that follow.
    """

    class exceptions:  # noqa: N801 (Ray's name)
        class RayTaskError(Exception):
            cause = ValueError("broken")

        class RayActorError(Exception):
            pass

        ObjectLostError = NodeDiedError = RayActorError

    def __init__(self, fates):
        self.fates, self.started = {number: list(words) for number, words in fates.items()}, []

    def remote(self, kind):
        del kind
        return self

    def options(self, **given):
        del given
        return types.SimpleNamespace(remote=self.start)

    def start(self, number, num_threads):
        del num_threads
        self.started.append(number)
        return types.SimpleNamespace(work=types.SimpleNamespace(remote=lambda: (number, object())))

    def wait(self, pending, timeout):
        del timeout
        return pending[:1], pending[1:]

    def get(self, asked):
        fates = self.fates[asked[0]]
        fate = fates.pop(0) if len(fates) > 1 else fates[0]
        if fate in ("dies", "fails"):
            raise self.exceptions.RayActorError if fate == "dies" else self.exceptions.RayTaskError
        return fate

    def kill(self, handle):
        pass

    def cluster_resources(self):
        return {}


@pytest.fixture(name="make")
def fixture_make(monkeypatch):
    """Makes actors with these fates, and gives the Ray that they are of."""
    def make(*fates):
        ray = FakeRay(dict(enumerate(fates)))
        monkeypatch.setattr(actors, "_connected", lambda count, options: (ray, False))
        found = actors.Actors(len(fates), PerformanceOptions(distribute="ray"), kind=object)
        for number in range(len(fates)):
            found._handles[number] = found._spawn(number)
        return found, ray

    return make


def work(number):
    del number
    return "work", ()


class Telling:
    """An actor whose errors quote a record."""

    def __init__(self, number, threads):
        del number, threads

    def load(self, error):
        raise error

    advance = load


@pytest.mark.parametrize("method, error, told", [
    ("load", DataError("values up to 173.25"), DataError), ("load", InvalidArgumentError("173.25"), DataError),
    ("load", ValueError("173.25"), DataError), ("advance", DataError("173.25"), RuntimeError),
    ("advance", ValueError("173.25"), RuntimeError)])
def test_what_is_wrong_with_records_is_told_to_their_owner_alone(method, error, told, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(told) as found:
        actors.Owner(Telling, 3, 1).answer(method, error)
    shown = "".join(traceback.format_exception(found.value))
    assert "173.25" not in shown and "3" in str(found.value)
    (log,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert str(log.relative_to(tmp_path)) in str(found.value)
    assert "173.25" in log.read_text() and log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("blocked", [False, True])
def test_what_cannot_be_written_is_not_told_either(blocked, tmp_path, monkeypatch):
    """Names of files that are no text, and a home folder that takes no file."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if blocked:
        (tmp_path / "home").write_text("a file")
    error = DataError(f"patient_M\udcfcller: value {4700 + 11}")
    with pytest.raises(DataError) as found:
        actors.Owner(Telling, 0, 1).answer("load", error)
    assert "4711" not in "".join(traceback.format_exception(found.value))
    logs = list(tmp_path.rglob("*.log"))
    assert not logs if blocked else "4711" in logs[0].read_text()


@pytest.mark.parametrize("error", [BudgetExhaustedError("spent"), CheckpointError("of another configuration")])
def test_errors_of_the_protocol_are_told(error, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(type(error), match=str(error)):
        actors.Owner(Telling, 0, 1).answer("advance", error)
    assert not list(tmp_path.rglob("*"))


def test_owners_are_asked_through_what_keeps_their_secrets(monkeypatch):
    asked = []
    owner = types.SimpleNamespace(answer=types.SimpleNamespace(remote=lambda *words: asked.append(words)))
    ray = types.SimpleNamespace(
        cluster_resources=dict, nodes=list, kill=lambda handle: None, remote=lambda kind: types.SimpleNamespace(
            options=lambda **given: types.SimpleNamespace(remote=lambda *words: asked.append((kind, *words)) or owner)))
    monkeypatch.setattr(actors, "_connected", lambda count, options: (ray, False))
    found = actors.Actors(1, PerformanceOptions(distribute="ray"), owners=True, kind=Telling)
    found._handles[0] = found._spawn(0)
    found._call(0, "load", ("x",))
    assert asked == [(actors.Owner, Telling, 0, 1), ("load", "x")]


def test_who_is_lost_is_started_again_and_asked_again(make):
    found, ray = make(["dies", "dies", 1], [2])
    told = []
    assert found.ask(work, told.append) == [1, 2] and ray.started == [0, 1, 0, 0] and told == [None, None]


def test_who_is_lost_too_often_ends_the_round_and_says_so(make):
    found, _ = make([1], ["dies"])
    with pytest.raises(ActorError, match="Actor 1 died or was silent for .* 4 times in one round"):
        found.ask(work)


def test_a_failure_that_is_no_loss_is_told(make):
    found, _ = make([1], ["fails"])
    with pytest.raises(ActorError, match="Actor 1 failed: ValueError"):
        found.ask(work)


def test_nobody_is_asked_for_noise_twice(make):
    """A release whose noise one owner has drawn is burnt, not drawn again."""
    found, ray = make([1, "dies"], ["dies", 2])
    assert found.ask_once(work, lambda answer: None) is None and ray.started == [0, 1, 1]
    assert ray.fates[0] == ["dies"]


@pytest.mark.parametrize("fate", ["dies", "fails"])
def test_one_who_is_given_up_costs_no_other_its_answer(make, fate):
    """The last one dies in the round in which the first is given up, and is waited for all the same."""
    found, ray = make([fate], [1], [fate, fate, fate, 2])
    assert found.ask_most(work) == {1: 1, 2: 2}
    assert ray.started == [0, 1, 2, 0, 2, 0, 2, 0, 2]
