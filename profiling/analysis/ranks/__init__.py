"""Several ranks of one training: their clocks, their collectives, who is waited for and why."""
