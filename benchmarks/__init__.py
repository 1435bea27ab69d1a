"""Speed of this project itself, each measurement with the command that repeats it."""
