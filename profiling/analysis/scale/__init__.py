"""What a training step would take on more GPUs: measured compute, a model of the links."""
