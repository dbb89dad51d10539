"""The registry of metrics: names in their order, and a metric that is one file."""

import textwrap

import numpy as np

from datalens_tf.evaluation import metrics, registry, report
from tests.evaluation.evaluation_data import real, tiny_evaluation


def test_names_come_in_their_order_and_say_what_they_measure():
    found = registry.declared()
    assert list(found) == ["utility", "classifiers", "quality", "membership"]
    assert all(metric.summary and "\n" not in metric.summary for metric in found.values())
    assert [name for name, metric in found.items() if not metric.needs_train] == ["utility"]


def test_a_file_in_the_folder_of_metrics_is_a_metric(tmp_path, monkeypatch):
    (tmp_path / "brightness.py").write_text(textwrap.dedent('''
        """How bright images are."""

        from datalens_tf.evaluation.context import Section

        SUMMARY = "mean brightness of a pixel"
        POSITION = 0
        NEEDS_TRAIN = False


        def num_parts(context):
            return 1


        def compute(context):
            sets = {"synthetic": context.synthetic, "real": context.test}
            return Section(values={"of": context.stages.run(
                "brightness", lambda: {name: float(records.images.mean()) for name, records in sets.items()})})


        def headline(values):
            return f"brightness {values['of']['synthetic']:.1f}"
    '''))
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    assert next(iter(registry.declared())) == "brightness"
    train = real("train")
    evaluation = tiny_evaluation(metrics=("brightness",))
    values = evaluation.metrics["brightness"]
    np.testing.assert_allclose(values["of"]["synthetic"], train.images.mean())
    assert registry.metric("brightness").headline(values) == f"brightness {train.images.mean():.1f}"
    page = report.render_report(evaluation.metrics, {}, None, b"")
    assert "mean brightness of a pixel" in page and f"{train.images.mean():.4f}" in page
