"""Compare two captures or runs: what changed, and whether it is more than noise."""
