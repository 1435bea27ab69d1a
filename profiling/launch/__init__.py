"""Starting training from outside, under nsys too, and what that needs of the machine."""
