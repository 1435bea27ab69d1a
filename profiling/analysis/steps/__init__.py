"""Find the subject of a report: its process, GPU, steps and phases."""
