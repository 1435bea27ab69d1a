"""Account for the GPU's time: the owner of each operation, and the causes of idle time."""
