"""Backward in pieces, on a machine without CUDA graphs; tests/gpu has the real ones."""

import pytest
import torch

from training.ranks.graph_pieces import BetweenGraphs
from training.step import graphs
from training.step.graphs import Pieces


class Graph:
    """Notes what happens between its begin and its end; one at a time."""

    open: "Graph | None" = None

    def __init__(self, replayed: list[str]):
        self.replayed, self.held = replayed, []

    def capture_begin(self, pool: object) -> None:
        assert Graph.open is None
        Graph.open = self

    def capture_end(self) -> None:
        assert Graph.open is self
        Graph.open = None

    def instantiate(self) -> None:
        pass

    def replay(self) -> None:
        self.replayed += self.held


@pytest.fixture
def replayed(monkeypatch) -> list[str]:
    replayed: list[str] = []
    monkeypatch.setattr(graphs, "empty_graph", lambda: Graph(replayed))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return replayed


def test_a_bucket_leaves_behind_the_piece_that_completes_it(replayed):
    between = BetweenGraphs()
    pieces = Pieces(None, between)

    def backward() -> None:
        assert not torch._C._is_multithreading_enabled()  # autograd's thread captures nothing
        for number in range(3):
            Graph.open.held.append(f"compute {number}")
            if number != 1:
                between(replayed.append, f"average bucket {number}")

    pieces.capture(backward)
    assert replayed == [] and Graph.open is None
    between(replayed.append, "at once")
    assert replayed.pop() == "at once"
    expected = ["compute 0", "average bucket 0", "compute 1", "compute 2", "average bucket 2"]
    for times in (1, 2):
        pieces.replay()
        assert replayed == expected * times
    assert len(pieces.graphs) == 3, "the last one holds what is behind the last bucket"
