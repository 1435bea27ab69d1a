"""A program of ONNX Runtime behind a model of PyTorch: a pipeline of two stages."""

from collections.abc import Sequence

import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, encoder


def session_of(layers: Sequence[nn.Linear]) -> onnxruntime.InferenceSession:
    """The layers with a ReLU behind each, where sessions run that are told nothing: on the CPU."""
    nodes, tensors = [], []
    for number, layer in enumerate(layers):
        given, names = f"x{number}", (f"weight{number}", f"bias{number}")
        for name, tensor in zip(names, (layer.weight, layer.bias), strict=True):
            tensors.append(numpy_helper.from_array(tensor.detach().cpu().numpy(), name))
        nodes.append(helper.make_node("Gemm", [given, *names], [f"h{number}"], transB=1))
        nodes.append(helper.make_node("Relu", [f"h{number}"], [f"x{number + 1}"]))
    first, last = layers[0].in_features, layers[-1].out_features
    given = helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["rows", first])
    scores = helper.make_tensor_value_info(f"x{len(layers)}", TensorProto.FLOAT, ["rows", last])
    graph = helper.make_graph(nodes, "scores", [given], [scores], tensors)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def onnx_on_cpu(fault: bool, mark: Mark) -> None:
    """Scores embeddings by a session that runs on the CPU; without the fault by the GPU.

    Nothing says so, and the GPU waits for the second stage.
    """
    width, wide, rows = size(768, 64), size(4096, 64), size(256, 4)
    embed = encoder(width, size(4, 1)).to(DEVICE, torch.bfloat16)
    x = torch.randn(rows, size(32, 4), width, device=DEVICE, dtype=torch.bfloat16)
    layers = [nn.Linear(width, wide), *(nn.Linear(wide, wide) for _ in range(2))]
    session = session_of(layers)
    second = [layer.to(DEVICE) for layer in layers]

    def scores(embedded: Tensor) -> Tensor:
        if fault:
            (out,) = session.run(None, {"x0": embedded.cpu().numpy()})
            return torch.from_numpy(out).to(DEVICE)
        for layer in second:
            embedded = layer(embedded).relu()
        return embedded

    with torch.no_grad():
        repeat(lambda: scores(embed(x).mean(1).float()).topk(5), mark)
