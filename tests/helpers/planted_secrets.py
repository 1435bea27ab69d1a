"""Secrets that must not leave the machine, planted where a careless program would pick them up."""

PRESENT = "sk-present-4712"  # in the environment of a process (tests/launch/conftest.py)
# in the shapes of those who issue them; put together here, so that no scanner takes them for real
TOKENS = [
    begin + "aB3d" * 10
    for begin in ("ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "hf_", "sk-proj-")
] + [begin + "Q7ZK" * 4 for begin in ("AKIA", "ASIA")]
TOKENS += [begin + "0f9e" * 8 for begin in ("sk-", "sk-or-v1-")]
