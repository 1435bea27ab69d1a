"""Documents about memory snapshots."""
