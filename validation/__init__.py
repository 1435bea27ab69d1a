"""Evidence for verdicts: what they are on faults that were planted, and where nothing differs."""
