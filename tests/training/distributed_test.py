"""Actors give what one process gives, whatever becomes of them; and owners never show votes without noise."""

import json
import os
import pathlib
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf import cli
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.partition import partition_indices
from datalens_tf.errors import ActorError, CheckpointError, DataError, InvalidArgumentError, LedgerError
from datalens_tf.mechanisms.noise import InsecureSeededNoise
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.callbacks import Callback
from datalens_tf.training.distributed import Owners, Share, check_owners, own_records, share_spans
from datalens_tf.training.teachers import TeacherBank
from datalens_tf.training.trainer import Trainer
from tests import ledgers
from tests.training import tiny
from tests.training.banks import arrays, from_images, make_rounds
from tests.training.tiny import released_bytes

CONFIG = tiny.CONFIG
MECHANISM = CONFIG.mechanism()
RAY = PerformanceOptions(distribute="ray", num_actors=2)
OWNED = CONFIG.replace(noise="gaussian", num_owners=2, dataset="npz:{owner}")


@pytest.fixture(name="ray", scope="module")
def fixture_ray():
    """One local cluster for all tests: starting one takes seconds."""
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


@pytest.fixture(name="reference", scope="module")
def fixture_reference(tmp_path_factory):
    """The generator of one process."""
    return released_bytes(Trainer(CONFIG, tiny.dataset(), tmp_path_factory.mktemp("reference")).run())


def make_share(folder, number, config=CONFIG, data=None, count=2):
    data = data or tiny.dataset()
    span = share_spans(config.num_teachers, count)[number]
    records = own_records(data, partition_indices(len(data), config.num_teachers, config.partition_seed)[span])
    share = Share(number)
    share.receive(records.images, records.labels, records.partitions)
    share.open(config, config.mechanism(), span.start, str(folder / str(number)))
    return share


@pytest.mark.parametrize("label", [1, 2, 900, -5])
def test_an_owner_s_classes_are_the_declared_ones_whatever_its_records_are(tmp_path, label):
    data = tiny.dataset()
    labels = np.where(np.arange(20) == 7, label, data.labels)
    np.savez(tmp_path / "0.npz", x=data.images, y=labels)
    facts = Share(0).load(f"npz:{tmp_path}/{{owner}}.npz", None, 4, 0, ("a", "b", "c"))
    assert facts == {"num_records": 20, "image_shape": (8, 8, 1), "num_classes": 3, "records_per_teacher": 5}


def round_(share, step, iterations):
    images = np.random.default_rng(step).uniform(size=(CONFIG.batch_size, 8, 8, 1)).astype(np.float32)
    return share.advance(iterations, from_images(make_rounds(2, step)), images, np.array([0, 1, 2]), step)


# Shares, without Ray.


def test_every_teacher_has_one_actor():
    for count in (1, 2, 3, 7):
        spans = share_spans(7, count)
        assert [t for span in spans for t in range(span.start, span.stop)] == list(range(7))
        assert max(s.stop - s.start for s in spans) - min(s.stop - s.start for s in spans) <= 1


def test_an_actor_gets_its_own_records_only():
    data = tiny.dataset()
    partitions = partition_indices(len(data), 4, 0)
    for span in share_spans(4, 2):
        records = own_records(data, partitions[span])
        assert len(records.images) == partitions[span].size
        np.testing.assert_array_equal(records.images[records.partitions], data.images[partitions[span]])
        np.testing.assert_array_equal(records.labels[records.partitions], data.labels[partitions[span]])


def test_shares_sum_to_the_votes_of_one_process(tmp_path):
    data = tiny.dataset()
    bank = TeacherBank(CONFIG, data.images, data.labels, partition_indices(len(data), 4, 0), MECHANISM)
    shares = [make_share(tmp_path, number) for number in range(2)]
    for step in range(3):
        rounds = from_images(make_rounds(2, step))
        images = np.random.default_rng(step).uniform(size=(CONFIG.batch_size, 8, 8, 1)).astype(np.float32)
        expected, _ = bank.advance(rounds, tf.constant(images), tf.constant([0, 1, 2], tf.int64), step)
        answers = [round_(share, step, 2 * step) for share in shares]
        assert all(answer.dtype == np.int32 for answer in answers)
        np.testing.assert_array_equal(sum(answers), expected)


def test_a_replaced_record_changes_one_actors_answer_within_the_sensitivity(tmp_path):
    data, other = tiny.dataset(), tiny.dataset()
    other.images[7], other.labels[7] = 255 - other.images[7], (other.labels[7] + 1) % 3
    shares = [[make_share(tmp_path / name, number, data=d) for number in range(2)]
              for name, d in (("data", data), ("other", other))]
    answers = [[round_(share, 0, 0) for share in both] for both in shares]
    moved = [np.linalg.norm(a.astype(float) - b) for a, b in zip(*answers)]
    assert min(moved) == 0 < sorted(moved)[1] <= MECHANISM.l2_sensitivity(CONFIG.batch_size)
    owner = int(np.argwhere(partition_indices(len(data), 4, 0) == 7)[0, 0])
    for mine, theirs in zip(*(map(np.concatenate, zip(*(arrays(share._bank) for share in both))) for both in shares)):
        same = [mine[t].tobytes() == theirs[t].tobytes() for t in range(4)]
        assert all(same[:owner] + same[owner + 1:])  # Every other teacher's state, bit by bit.


def test_an_actor_refuses_other_records_than_its_teachers_know(tmp_path):
    make_share(tmp_path, 0)._lock.close()
    other = tiny.dataset(seed=1)
    with pytest.raises(CheckpointError, match="other records"):
        make_share(tmp_path, 0, data=other)


def test_an_owner_never_shows_votes_without_its_noise(tmp_path):
    config = CONFIG.replace(noise="gaussian", num_owners=2, owner_tolerance=0, noise_stddev=30.0)
    share, plain = make_share(tmp_path / "owner", 0, config), make_share(tmp_path / "plain", 0)
    votes = round_(plain, 0, 0)
    assert round_(share, 0, 0) is None
    noisy = share.noisy_votes()
    expected = InsecureSeededNoise(CONFIG.insecure_noise_seed + 1).draw(noisy.shape, 30.0 / 2**0.5, 0)
    np.testing.assert_allclose(noisy - votes, expected)
    with pytest.raises(InvalidArgumentError, match="once"):  # Two answers would average the noise away.
        share.noisy_votes()


def test_an_owner_refuses_a_driver_with_another_configuration(tmp_path):
    config = CONFIG.replace(noise="gaussian", num_owners=2)
    make_share(tmp_path, 0, config)._lock.close()
    with pytest.raises(CheckpointError, match="another configuration"):
        make_share(tmp_path, 0, config.replace(epsilon=20.0))


def test_an_owner_counts_for_itself_and_stops_at_its_budget(tmp_path):
    config = CONFIG.replace(noise="gaussian", num_owners=2, num_steps=None, epsilon=2.0)
    share = make_share(tmp_path, 0, config)
    with pytest.raises(Exception, match="budget"):
        for step in range(1000):
            round_(share, step, 0)
            share.noisy_votes()
    ledger = PrivacyLedger.open(tmp_path / "0" / "ledger.jsonl")
    assert 0 < len(ledger.charges) == step and ledger.spent() <= 2.0


@pytest.mark.parametrize("loss", ledgers.LOSSES)
def test_an_owners_ledger_that_lost_charges_is_refused(tmp_path, loss):
    config = CONFIG.replace(noise="gaussian", num_owners=2)
    share = make_share(tmp_path, 0, config)
    round_(share, 0, 0)
    share.noisy_votes()
    share._lock.close()
    ledgers.lose(tmp_path / "0" / "ledger.jsonl", loss)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl .*put the .*newest ledger back"):
        make_share(tmp_path, 0, config)


@pytest.mark.parametrize("num_owners,tolerance", [(2, 0), (5, 0), (5, 2)])
def test_noise_of_honest_owners_reaches_the_promised_level(num_owners, tolerance):
    config = CONFIG.replace(noise="gaussian", num_teachers=10, num_owners=num_owners, owner_tolerance=tolerance)
    honest = num_owners - tolerance
    assert honest * config.noise_share == pytest.approx(1.0)
    assert num_owners * config.noise_share >= 1.0


# Actors.


class Act(Callback):
    """Does something when the teachers of a step are half done, or after it."""

    def __init__(self, during=None, after=None):
        self.during, self.after, self.trainer = during or {}, after or {}, None

    def on_progress(self, what, fraction):
        action = self.during.pop(what, None)
        if action:
            action()

    def on_step(self, report):
        action = self.after.pop(report.step, None)
        if action:
            action()


def kill_one(number_of=0, how=signal.SIGKILL):
    """Sends a signal to the process of the actor that was started first of those alive."""
    os.kill(living_actors()[number_of], how)


def living_actors():
    return sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _is_actor(int(entry)))


def _is_actor(pid):
    """Whether it is one of this process' cluster: another one may run the same tests."""
    try:
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        if not any(kind in command for kind in (b"ray::Share", b"ray::Owner")):
            return False
        while pid > 1 and pid != os.getpid():
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return pid > 1
    except OSError:
        return False


def wait_for_their_end():
    """Ray ends an actor's process some time after it was asked to."""
    deadline = time.monotonic() + 60
    while living_actors():
        assert time.monotonic() < deadline, "Actors outlive their training."
        time.sleep(0.1)


def train(run_dir, options=RAY, config=CONFIG, dataset=None, **actions):
    if dataset is None:
        wait_for_their_end()  # So that only this training's actors can be found and killed.
    trainer = Trainer(config, dataset or tiny.dataset(), run_dir, options=options, callbacks=[Act(**actions)])
    return trainer, trainer.run()


@pytest.mark.slow
def test_actors_give_the_same_generator_as_one_process(ray, tmp_path, reference):
    trainer, student = train(tmp_path)
    assert released_bytes(student) == reference
    assert trainer.num_burnt == 0
    wait_for_their_end()


@pytest.mark.slow
def test_killed_and_stalled_actors_are_replaced_from_their_own_checkpoints(ray, tmp_path, reference):
    # Long enough for an actor on a busy machine to load TensorFlow and compile its teachers.
    options = PerformanceOptions(distribute="ray", num_actors=2, actor_timeout_minutes=1.5)
    trainer, student = train(tmp_path, options, during={"warm-up": kill_one, "step 3": kill_one},
                             after={3: lambda: kill_one(how=signal.SIGSTOP)})
    assert released_bytes(student) == reference
    assert trainer.num_burnt == 0 and len(trainer.ledger.charges) == CONFIG.num_steps


@pytest.mark.slow
def test_a_lost_machine_costs_time_and_no_charge(ray, tmp_path, reference):
    def lose():
        kill_one()
        for path in sorted((tmp_path / "private" / "actors").glob("*/teachers.bin")):
            path.unlink()

    trainer, student = train(tmp_path, after={3: lose})
    assert released_bytes(student) == reference and len(trainer.ledger.charges) == CONFIG.num_steps


@pytest.mark.slow
def test_a_driver_that_dies_is_continued(ray, tmp_path, reference):
    class Death(Exception):
        pass

    def die():
        raise Death

    with pytest.raises(Death):
        train(tmp_path, during={"step 3": die})
    trainer, student = train(tmp_path)
    assert released_bytes(student) == reference
    assert trainer.num_burnt == 0


@pytest.mark.slow
def test_errors_of_an_actor_are_the_users_own_and_leave_none_behind(ray, tmp_path):
    with pytest.raises(DataError, match="Owner [01] cannot use its data: .* says why"):
        Owners(OWNED.replace(dataset=f"npz:{tmp_path}/{{owner}}.npz"), RAY)
    wait_for_their_end()


# Owners.


@pytest.fixture(name="owned")
def fixture_owned(tmp_path):
    """Two owners' files, of different size."""
    for number, count in enumerate((14, 9)):
        data = tiny.dataset(count, seed=number)
        np.savez(tmp_path / f"{number}.npz", x=data.images, y=data.labels)
    return OWNED.replace(dataset=f"npz:{tmp_path}/{{owner}}.npz")


def train_owned(run_dir, config, **actions):
    wait_for_their_end()
    owners = Owners(config, RAY)
    return owners, *train(run_dir, RAY, config, owners, **actions)


@pytest.mark.slow
def test_owners_train_together_and_the_sum_has_all_the_noise(ray, tmp_path, owned):
    owners, trainer, _ = train_owned(tmp_path / "run", owned)
    assert owners.num_records == [14, 9] and len(owners) == 23
    assert len(trainer.ledger.charges) == CONFIG.num_steps and trainer.num_burnt == 0
    for number in range(2):
        own = PrivacyLedger.open(tmp_path / "run" / "private" / "actors" / str(number) / "ledger.jsonl")
        assert len(own.charges) == CONFIG.num_steps
    # With predictable noise, what is left is votes: the shares' noises add up.
    noisy = trainer.releases.load(1)
    noise = sum(InsecureSeededNoise(CONFIG.insecure_noise_seed + 1 + number).draw(
        noisy.shape, CONFIG.noise_stddev / 2**0.5, 0) for number in range(2))
    votes = noisy - noise
    np.testing.assert_allclose(votes, np.rint(votes), atol=1e-9)
    assert 0 < np.abs(votes).max() <= CONFIG.num_teachers


@pytest.mark.slow
def test_an_owner_lost_between_vote_and_release_burns_the_charge(ray, tmp_path, owned, monkeypatch):
    spend, killed = PrivacyLedger.spend, []

    def dying(self, event, step):
        charge = spend(self, event, step=step)
        if step == 2 and not killed:
            killed.append(kill_one())
        return charge

    monkeypatch.setattr(PrivacyLedger, "spend", dying)
    _, trainer, _ = train_owned(tmp_path / "run", owned)
    assert [charge.step for charge in trainer.ledger.charges] == [1, 2, 2, 3, 4, 5]
    assert trainer.num_burnt == 1


def test_data_that_all_owners_would_load_is_refused():
    with pytest.raises(InvalidArgumentError, match="dataset='mnist' to contain {owner}"):
        Owners(CONFIG.replace(noise="gaussian", num_owners=2, dataset="mnist"), RAY)


@pytest.mark.parametrize("options", [PerformanceOptions(), RAY])
def test_shares_of_the_noise_without_owners_are_refused(tmp_path, options):
    """Two actors that add a fifth of the noise each would release with less than was charged for."""
    with pytest.raises(InvalidArgumentError, match="num_owners=5 to be .* which is None"):
        Trainer(CONFIG.replace(noise="gaussian", num_owners=5, num_teachers=5), tiny.dataset(), tmp_path,
                options=options)


@pytest.mark.slow
def test_owners_are_not_trained_as_one_party(ray, tmp_path, owned):
    owners = Owners(owned, RAY)
    with pytest.raises(InvalidArgumentError, match="num_owners=None to be .* which is 2"):
        Trainer(CONFIG, owners, tmp_path / "run", options=RAY)
    with pytest.raises(InvalidArgumentError, match="num_owners=3 to be .* which is 2"):
        Trainer(owned.replace(num_owners=3), owners, tmp_path / "run", options=RAY)
    owners.actors.close()


def test_owners_must_agree():
    config = CONFIG.replace(noise="gaussian", num_owners=2)
    facts = dict(image_shape=(8, 8, 1), num_classes=3, records_per_teacher=3)
    check_owners(config, [facts, facts])
    with pytest.raises(DataError, match="owner 1 has num_classes 4, owner 0 has 3"):
        check_owners(config, [facts, facts | {"num_classes": 4}])
    with pytest.raises(DataError, match="owner 1 has 2 records per teacher.*lower"):
        check_owners(config, [facts, facts | {"records_per_teacher": 2}])


def test_a_missing_cluster_is_one_clear_line(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **kwargs: (_ for _ in ()).throw(ConnectionError("no such host\nmore")))
    with pytest.raises(ActorError, match="Cannot reach the Ray cluster 'ray://nowhere:1': no such host$"):
        Owners(OWNED, PerformanceOptions(distribute="ray://nowhere:1"))


# The command line.


@pytest.mark.slow
def test_the_command_line_trains_with_owners(ray, tmp_path, owned, capsys):
    flags = ["--dataset", owned.dataset, "--noise=gaussian", "--num_owners=2", "--num_teachers=4", "--num_steps=2",
             "--top_k=5", "--batch_size=3", "--teacher_batch_size=3", "--noise_stddev=20", "--epsilon=100",
             "--generator_filters=4", "--generator_units=8", "--discriminator_filters=4", "--discriminator_units=8",
             "--latent_dim=4",
             "--warmup_teacher_steps=1", "--teacher_steps=1"]
    assert cli.main(["train", "--output_dir", str(tmp_path / "run"), *flags]) == 2
    assert "Missing --distribute: with num_owners=2 say where the owners are" in capsys.readouterr().err
    assert cli.main(["train", "--output_dir", str(tmp_path / "run"), *flags, "--distribute=ray"]) == 0
    assert "2 steps" in capsys.readouterr().out
    assert (tmp_path / "run" / "samples.png").is_file()
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert statement["private"] and statement["num_records"] == 23
    assert "2 data owners keep their records" in " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
