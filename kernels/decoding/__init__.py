"""Kernels of our own for one new token of each sequence: sampling on CUDA with Triton.

A token is so little work that the number of kernels decides its time. So a product includes the
norm before it and the GELU after it, attention stores the key and value that it is given, and a
draw writes the token to where it is read. Results differ from PyTorch's by rounding only. There are
no gradients.

kernels.decoding.in_triton is imported when the first of them is launched, since that takes long.
"""

from torch import Tensor


def attend_newest(qkv: Tensor, kept: Tensor, position: Tensor, heads: int) -> Tensor:
    """Store the newest keys and values and attend to all up to them; returns (B, C).

    qkv (B, 3C) has the newest tokens' queries, keys and values side by side, `kept` (B, S, 2C) the
    keys and values of the tokens before. `position` (1) is the number of these, less than S, and is
    read on the device. Raises NotImplementedError if C / heads is not 16, 32, 64 or 128.
    """
    from kernels.decoding.in_triton import launch_attention

    return launch_attention(qkv, kept, position, heads)


def linear_of_norm(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    gelu: bool = False,
) -> Tensor:
    """Linear layer of the layer norm of x (B, C), followed by GELU if `gelu`; (B, outputs).

    Raises NotImplementedError if C is above 1024, or 512 in float32.
    """
    from kernels.decoding.in_triton import launch_linear

    return launch_linear(x, norm_weight, norm_bias, weight, bias, gelu)


def draw_newest(
    logits: Tensor,
    noise: Tensor,
    index: Tensor,
    temperature: float,
    position: Tensor,
    token: Tensor,
    context: Tensor,
) -> None:
    """Write the largest of logits (B, V) / temperature + noise to `token` and context[:, position].

    noise is (B, N, V), of which number `index` (1) is used; token is (B, 1), context (B, places).
    """
    from kernels.decoding.in_triton import launch_draw

    launch_draw(logits, noise, index, temperature, position, token, context)
