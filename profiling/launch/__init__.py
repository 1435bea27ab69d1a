"""Training started under nsys from outside, and what that needs of the machine."""
