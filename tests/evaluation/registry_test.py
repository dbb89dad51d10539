"""The registry of metrics: names in their order."""

from datalens_tf.evaluation import registry


def test_names_come_in_their_order_and_say_what_they_measure():
    found = registry.declared()
    assert list(found) == ["utility", "classifiers", "quality", "membership"]
    assert all(metric.summary and "\n" not in metric.summary for metric in found.values())
    assert [name for name, metric in found.items() if not metric.needs_train] == ["utility"]
