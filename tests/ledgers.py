"""What tests do to ledgers."""

import hashlib
import json

from datalens_tf.accounting.ledger import PrivacyLedger

LOSSES = ("everything", "the last charges", "another run's")


def charges(folder):
    """The charges of a run, which no two runs write alike."""
    return PrivacyLedger.read(folder.ledger).charges


def lose(path, loss):
    """Takes a ledger away, cuts its charges off, or puts an equally expensive one of another run in its place."""
    ledger = PrivacyLedger.read(path)
    path.unlink()
    if loss == "the last charges":
        path.write_bytes(ledger.until(0).content)
    if loss == "another run's":
        other = PrivacyLedger.create(
            path, epsilon=ledger.epsilon_budget, delta=ledger.delta, accountant=ledger.accountant,
            adjacency=ledger.adjacency, config_digest=ledger.config_digest, step_event=ledger.step_event,
            secret_noise=ledger.secret_noise)
        for charge in ledger.charges:
            other.spend(charge.event, step=charge.step)


def as_version_1(path):
    """Rewrites a ledger as versions before ids did."""
    lines, previous = [], ""
    for line in path.read_text().splitlines():
        record = {name: value for name, value in json.loads(line).items()
                  if name not in ("hash", "run_id", "secret_noise", "start", "id")}
        record |= {"version": 1} if record["kind"] == "header" else {}
        previous = hashlib.sha256((previous + json.dumps(record, sort_keys=True)).encode()).hexdigest()
        lines.append(json.dumps(record | {"hash": previous}) + "\n")
    path.write_text("".join(lines))
