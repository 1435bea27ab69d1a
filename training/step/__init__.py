"""One iteration: how the model lies on the ranks, and the warm-up before the first."""
