"""Training: the run folder, releases, checkpoints, teachers and students."""
