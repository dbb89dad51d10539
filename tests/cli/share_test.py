"""`datalens share`: what a folder that leaves the house holds."""

import shutil

from datalens_tf import image_generator
from tests.cli.commands import refused


def test_what_is_private_or_of_unknown_origin_stays(finished, tmp_path, datalens):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "patients.csv").write_text("Anna Huber\n")
    (run / "report.html").write_text("measured on real records\n")
    shared = tmp_path / "out/shared"
    assert datalens("share", run, "--output_dir", shared)[0] == 0
    texts = [path.read_text(errors="replace") for path in shared.rglob("*") if path.is_file()]
    assert len(texts) > 10 and not any("Huber" in text or text == "measured on real records\n" for text in texts)
    (run / "generator" / "1" / "notes.txt").write_text("Anna Huber\n")
    refused(datalens("share", run, "--output_dir", tmp_path / "again"), "notes.txt")
    image_generator.load(run).save(tmp_path / "saved")
    assert not list((tmp_path / "saved").rglob("notes.txt"))


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


def test_what_was_changed_is_not_shared(finished, tmp_path, datalens):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "samples.npz").write_bytes(b"real records")
    refused(datalens("share", run, "--output_dir", tmp_path / "a"), "altered or damaged", "samples.npz")
    (run / "SHA256SUMS").unlink()
    refused(datalens("share", run, "--output_dir", tmp_path / "a"), "does not say which files it wrote", "--resume")
    refused(datalens("share", run / "generator", "--output_dir", tmp_path / "a"), "to be a run folder")
    (run / "config.json").write_text('{"method": "dp_sgd_classifier"}')
    refused(datalens("share", run, "--output_dir", tmp_path / "a"), "to be a run of a generator")
    assert not (tmp_path / "a").exists()
