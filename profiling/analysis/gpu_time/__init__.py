"""Where the GPU's time went: who owns each operation, and why it was idle."""
