"""Rows of a run and where they go: the screen, files, W&B, TensorBoard; what they say of it."""
