"""The public functions of this project, for notebooks and other programs."""
