"""Inside the training process: what is measured while it runs."""
