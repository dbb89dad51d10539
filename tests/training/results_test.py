"""Results on real records: where they are put, and where they are looked for."""

from datalens_tf.training.results import make_results_folder, result_file


def test_private_results_are_the_newer_ones(tmp_path):
    (tmp_path / "metrics.json").write_text("old")
    assert result_file(tmp_path) == tmp_path / "metrics.json"
    made = make_results_folder(tmp_path)
    assert result_file(tmp_path) == tmp_path / "metrics.json"
    (made / "metrics.json").write_text("new")
    assert result_file(tmp_path).read_text() == "new" and made == tmp_path / "private/evaluation"
    assert result_file(tmp_path, "accuracy.json") == tmp_path / "accuracy.json"


def test_nobody_else_can_look(tmp_path):
    (tmp_path / "private").mkdir(mode=0o755)
    made = make_results_folder(tmp_path)
    assert made.stat().st_mode & 0o777 == made.parent.stat().st_mode & 0o777 == 0o700
