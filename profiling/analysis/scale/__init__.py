"""Prediction of a training step on more GPUs, from measured compute and a model of the links."""
