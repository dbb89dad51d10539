"""A run folder belongs to its settings, also to those of earlier versions."""

import json

import pytest

from datalens_tf import _files
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.config import config_digest
from datalens_tf.errors import CheckpointError
from datalens_tf.training.run_folder import RunFolder, open_run
from tests.training import tiny

EVENT = tiny.CONFIG.mechanism().dp_event(tiny.CONFIG.batch_size)
IDENTITY = {"num_records": 20, "checksum": 1}


def test_a_run_from_before_classes_could_be_declared_goes_on_with_the_number_that_it_has(tmp_path):
    files, config = RunFolder(tmp_path), tiny.CONFIG
    files.create()
    fields = json.loads(config.to_json())
    del fields["classes"]
    text = json.dumps(fields)
    _files.atomic_write(files.config, text)
    _files.atomic_write(files.identity, json.dumps(IDENTITY))
    PrivacyLedger.create(files.ledger, epsilon=config.epsilon, delta=config.delta, accountant=config.accountant,
                         adjacency=config.adjacency, config_digest=config_digest(text), step_event=EVENT)
    assert open_run(files, config, IDENTITY, EVENT).num_charges == 0
    assert open_run(files, config.replace(classes=("0", "1", "2")), IDENTITY, EVENT).num_charges == 0
    with pytest.raises(CheckpointError, match="another configuration"):
        open_run(files, config.replace(num_classes=4, classes=tuple("0123")), IDENTITY, EVENT)


def test_declared_classes_are_part_of_a_runs_settings(tmp_path):
    files, config = RunFolder(tmp_path), tiny.CONFIG.replace(classes=("a", "b", "c"))
    files.create()
    open_run(files, config, IDENTITY, EVENT)
    assert open_run(files, config, IDENTITY, EVENT).num_charges == 0
    for other in (("a", "c", "b"), None):
        with pytest.raises(CheckpointError, match="another configuration"):
            open_run(files, config.replace(classes=other), IDENTITY, EVENT)
