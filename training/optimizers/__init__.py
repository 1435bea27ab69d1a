"""The optimizers and the update that ranks share."""
