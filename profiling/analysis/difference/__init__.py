"""What changed between two, and whether it is more than noise."""
