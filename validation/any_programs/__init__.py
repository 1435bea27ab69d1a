"""Programs that know nothing of this project: scripts, started by validation.any_program.

Each makes STEPS steps, on a GPU if there is one, and prints nothing that differs from run to run.
"""
