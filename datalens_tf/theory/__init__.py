"""What can be calculated before training: how fast it may converge, and which settings promise most."""
