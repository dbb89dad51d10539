"""The script that measures generators from few records: cells that are there are not measured again."""

import csv
import sys

import numpy as np
import pytest

from datalens_tf.facts import DataFacts


def test_a_stopped_table_goes_on_and_records_are_not_tested_on_themselves(study, tmp_path, monkeypatch):
    calls = []

    def measured(column, train, chosen, test, epsilon, args):
        calls.append((column, len(chosen), epsilon, len(test[1])))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return {"method": "", "accuracy": "0.5", "seconds": "1"}

    monkeypatch.setattr(study, "measured", measured)
    monkeypatch.setattr(sys, "argv", ["few_records.py", f"--output_dir={tmp_path}", "--datasets", "digits", "--sizes",
                                      "20", "30", "--columns", "real", "control", "--epsilons", "1", "3"])
    with pytest.raises(KeyboardInterrupt):
        study.main()
    study.main()
    assert [call[:3] for call in calls[4:]] == 2 * [("control", 30, 1.0)] + [("control", 30, 3.0)]
    with (tmp_path / "few_records.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["column"], row["records"], row["epsilon"]) for row in rows] == [
        (column, records, epsilon) for records in ("20", "30")
        for column, epsilon in (("real", ""), ("control", "1"), ("control", "3"))]


@pytest.mark.parametrize("column", ["default", "merf", "control", "old"])
def test_columns_are_settings_that_spend_the_same_budget(study, column):
    config = study.settings(column, DataFacts(num_records=3000, image_shape=(28, 28, 1), num_classes=10), 3.0)
    resolved = config.replace(image_shape=(28, 28, 1), num_classes=10).resolved(3000)
    total = np.sqrt(resolved.num_charges) / resolved.noise_multiplier
    assert resolved.epsilon == 3.0 and total == pytest.approx(0.7198, rel=1e-2)
    assert getattr(resolved, "share_covariance", False) == (column in ("default", "control"))
