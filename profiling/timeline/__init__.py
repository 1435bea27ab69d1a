"""One Trace for every kind of capture, and a reader for each kind."""
