"""What tests of the command line share."""

from datalens_tf.training import callbacks

# A run of seconds: four teachers, tiny networks.
TINY = [
    "--method=datalens", "--num_teachers=4", "--num_steps=4", "--top_k=10", "--batch_size=4", "--noise_stddev=20",
    "--epsilon=100", "--generator_filters=4", "--generator_units=16", "--discriminator_filters=4",
    "--discriminator_units=8", "--latent_dim=4", "--warmup_teacher_steps=1", "--teacher_steps=1"]


def on_step(monkeypatch, action):
    """Calls action(step) after every step of a run."""
    monkeypatch.setattr(callbacks.PrivateLog, "on_step", lambda self, report: action(report.step))


def refused(result, *texts, status=2):
    """That a command ended with this status and one line, which holds the texts."""
    assert result[0] == status, result
    assert result[1] == "" and len(result[2].strip().splitlines()) == 1, result
    assert result[2].startswith("datalens: ") and "Traceback" not in result[2]
    for text in texts:
        assert text in result[2], result[2]
