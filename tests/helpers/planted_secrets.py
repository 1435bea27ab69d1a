"""Secrets that must not leave the machine, planted where a careless program would pick them up."""

PRESENT = "sk-present-4712"  # in the environment of a process (tests/launch/conftest.py)
# in the shapes of those who issue them; put together here, so that no scanner takes them for real
TOKENS = [
    begin + "aB3d" * 10
    for begin in ("ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "hf_", "sk-proj-")
] + [begin + "Q7ZK" * 4 for begin in ("AKIA", "ASIA")]
TOKENS += [begin + "0f9e" * 8 for begin in ("sk-", "sk-or-v1-")]
TOKENS += ["npm_" + "aB3d" * 9, "AIza" + "aB3-d" * 7, "pypi-AgE" + "IcHl_w-" * 20]
TOKENS += [".".join(["eyJ" + "hbGc" * 8, "eyJ" + "zdWI" * 20, "aB3-_d" * 7])]
TOKENS += [
    "sk-" + "qX7f" * 5 + "T3Blbk" + "FJ" + "aB3d" * 5,
    "sk-ant-api03-" + "Zk4_9Q-wXm2Tb7Rf" * 6,
]
