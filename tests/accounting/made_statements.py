"""Statements of runs that nobody made, for tests."""

import functools
import pathlib
import tempfile

from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.mechanisms import SecureGaussianNoise
from datalens_tf.methods.datalens import PRESETS, privacy_statement

CONFIG = PRESETS["mnist", 1.0]
EVENT = CONFIG.mechanism().dp_event(CONFIG.batch_size)


def make(num_charges=149, num_burnt=2, config=CONFIG, noise=None, event=EVENT):
    """The statement of a run of DataLens with so many charges."""
    return privacy_statement(
        config=config, mechanism=config.mechanism(), num_burnt=num_burnt, num_records=60_000,
        ledger=ledger_of(num_charges, event), noise=noise or SecureGaussianNoise())


@functools.cache
def ledger_of(num_charges, event):
    """A ledger with these charges, which outlives its file."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = PrivacyLedger.create(pathlib.Path(folder) / "ledger.jsonl", epsilon=10.0, delta=1e-5, accountant="gdp",
                                      config_digest="", step_event=event)
        for step in range(num_charges):
            ledger.spend(event, step=step + 1)
        return ledger
