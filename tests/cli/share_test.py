"""`datalens share`: what a folder that leaves the house holds."""

import shutil

from tests.cli.commands import refused


def test_what_is_private_or_of_unknown_origin_stays(finished, tmp_path, datalens):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "patients.csv").write_text("Anna Huber\n")
    (run / "generator" / "1" / "notes.txt").write_text("Anna Huber\n")
    (run / "report.html").write_text("measured on real records\n")
    shared = tmp_path / "out/shared"
    assert datalens("share", run, "--output_dir", shared)[0] == 0
    texts = [path.read_text(errors="replace") for path in shared.rglob("*") if path.is_file()]
    assert len(texts) > 10 and not any("Huber" in text or "real records\n" == text[-13:] for text in texts)


def test_the_copy_is_whole(finished, tmp_path, datalens):
    status, out, err = datalens("share", finished, "--output_dir", tmp_path / "shared")
    assert (status, err) == (0, "") and "privacy.txt" in out
    names = {path.relative_to(tmp_path / "shared").parts[0] for path in (tmp_path / "shared").rglob("*")}
    assert names == {"SHA256SUMS", "config.json", "generator", "ledger.jsonl", "privacy.json", "privacy.txt",
                     "samples.npz", "samples.png"}
    status, out, _ = datalens("verify", tmp_path / "shared")
    assert status == 0 and "FAILED" not in out and "private" not in out.partition("Nobody")[0]


def test_what_is_not_private_or_not_done_is_refused(finished, interrupted, tmp_path, datalens):
    assert datalens("train", "--method=dcgan", "--dataset=digits", "--num_steps=1", "--no_evaluation",
                    "--output_dir", tmp_path / "dcgan")[0] == 0
    refused(datalens("share", tmp_path / "dcgan", "--output_dir", tmp_path / "a"), "NOT PRIVATE")
    refused(datalens("share", interrupted[0], "--output_dir", tmp_path / "a"), "no finished run")
    refused(datalens("share", finished, "--output_dir", tmp_path), "to be a new folder")
    refused(datalens("share", tmp_path / "nowhere", "--output_dir", tmp_path / "a"), "nowhere")
    assert not (tmp_path / "a").exists()
