"""Windows that are asked for while a program of several ranks goes on."""

import json

from tests.helpers.forked import HOOKED, Forked
from tests.helpers.hooked import hooked

# Rank 1 is late: it goes on when rank 0 has taken the request.
PROGRAM = """
import os, time, torch
torch.set_num_threads(1)
rank = os.environ["RANK"]
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model(torch.randn(8, 16)).square().mean().backward()
    if step in (15, 55):
        asked, request = f"asked-{step}", "run/trigger.json"
        if rank == "0":
            open(request, "w").write('{"steps": 3}')
            open(asked, "w").close()
        while rank == "1" and (not os.path.exists(asked) or os.path.exists(request)):
            time.sleep(0.01)
    optimizer.step(); optimizer.zero_grad()
"""


def test_all_ranks_record_the_same_steps_however_late_one_looks(tmp_path):
    folder, program = tmp_path / "run", tmp_path / "mine.py"
    program.write_text(PROGRAM)
    environ = hooked(folder, kind="none", steps=20)
    ranks = [
        Forked(
            ["-c", HOOKED, str(program)],
            environ | {"RANK": str(rank), "WORLD_SIZE": "2"},
            folder=tmp_path,
        )
        for rank in (0, 1)
    ]
    assert [rank.communicate(timeout=90)[0] for rank in ranks] == ["", ""]
    windows = {
        path.name: json.loads(path.read_text())["window"]
        for path in (folder / "profile").glob("*.json")
    }
    assert {name: (w["first_iteration"], w["steps"]) for name, w in windows.items()} == {
        "window-1-rank0.json": (40, 3),
        "window-1-rank1.json": (40, 3),
        "window-2-rank0.json": (80, 3),
        "window-2-rank1.json": (80, 3),
    }
