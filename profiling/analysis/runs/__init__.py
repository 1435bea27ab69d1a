"""Read run folders back, and analyse runs side by side."""
