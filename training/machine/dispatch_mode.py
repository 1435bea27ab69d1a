"""Dispatch mode of PyTorch that imports no Dynamo, which takes about a second."""

from torch.utils._python_dispatch import TorchDispatchMode


class PlainDispatchMode(TorchDispatchMode):
    """Base of modes that see each ATen operator within their block, outside compiled code."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # PyTorch's name
        return False  # True would import Dynamo, even if nothing is compiled
