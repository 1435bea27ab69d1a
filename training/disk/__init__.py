"""The run's folder, checkpoints and weights."""
