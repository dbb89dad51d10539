"""Rows of studies: each is computed once, also by another process, and numbers are told apart as they are written."""


def test_rows_outlive_the_process_and_are_known_again(study, tmp_path):
    path = tmp_path / "rows.csv"
    rows = study.Rows(path, ("data", "seed", "found"), ("data", "seed"))
    assert {"data": "mnist", "seed": 1} not in rows
    rows.add({"data": "mnist", "seed": 1, "found": 0.5})
    for known in (rows, study.Rows(path, ("data", "seed", "found"), ("data", "seed"))):
        assert {"data": "mnist", "seed": 1, "found": 0.7} in known
        assert {"data": "mnist", "seed": 11} not in known
    assert path.read_text() == "data,seed,found\nmnist,1,0.5\n"
