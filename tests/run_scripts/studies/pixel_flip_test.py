"""The study of flipped pixels: who has the bug, and the number that shows it."""


import numpy as np
import pytest

from tests.training import tiny


def test_most_users_of_the_new_version_have_the_bug_and_nobody_is_in_both_groups(study):
    data = tiny.as_dataset(np.arange(40, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8),
                           np.arange(40) % 2, 2)
    groups = study.split(data, num_users=5, num_records=3, flipped=0.8)
    assert [len(group) for group in groups.values()] == [15, 15]
    inverted = {name: group.images[:, 0, 0, 0] >= 128 for name, group in groups.items()}
    assert not inverted["old"].any()
    assert [set(inverted["new"][groups["new"].users == user]) for user in range(5)] == [{True}] * 4 + [{False}]
    seen = [image if image < 128 else 255 - image for group in groups.values() for image in group.images[:, 0, 0, 0]]
    assert len(set(seen)) == 30
    np.testing.assert_array_equal(data.images[:, 0, 0, 0], np.arange(40))  # The records themselves are as they were.


def test_the_background_is_the_frame(study):
    images = np.full((2, 8, 8, 1), 255, np.uint8)
    images[:, 2:-2, 2:-2] = 0
    assert study.background(images) == 1.0 and study.background(255 - images) == 0.0


@pytest.mark.study
@pytest.mark.parametrize("method", ["fed_gs_wgan", "fed_avg_gan"])
def test_a_small_study_runs_and_says_what_it_costs(study, method, tmp_path, monkeypatch, capsys):
    flags = ["--dataset=digits", "--num_users=3", "--num_records=4", "--num_steps=1", f"--method={method}"]
    monkeypatch.setattr("sys.argv", ["pixel_flip.py", *flags, "--output_dir", str(tmp_path)])
    study.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" version: epsilon ")[0] for line in lines[:2]] == ["old", "new"]
    for line in lines[:2]:
        assert "-one-user)" in line and "bytes per user, background 0." in line
    assert (tmp_path / "pixel_flip.png").stat().st_size > 1000
