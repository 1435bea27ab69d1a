"""One new token of each sequence as kernels of our own: sampling on CUDA, where Triton is.

A token is so little work that the number of kernels is its time. So a product takes the norm before
it and the GELU behind it along, attention stores the key and value that it is given, and a draw
puts the token where it is read. What differs from PyTorch's results is rounding. No gradients.

kernels.decoding_triton is imported when the first of them is launched: Triton takes its time.
"""

from torch import Tensor


def attend_newest(qkv: Tensor, kept: Tensor, position: Tensor, heads: int) -> Tensor:
    """Stores the newest keys and values and attends to all up to them; returns (B, C).

    qkv (B, 3C) has the newest tokens' queries, keys and values side by side, `kept`, (B, S, 2C),
    keys and values of the tokens before, `position`, (1), how many these are: less than S, and read
    on the device. Raises NotImplementedError where C / heads is not 16, 32, 64 or 128.
    """
    from kernels.decoding_triton import launch_attention

    return launch_attention(qkv, kept, position, heads)


def linear_of_norm(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    gelu: bool = False,
) -> Tensor:
    """A linear layer of x's layer norm, behind it GELU where asked for; (B, C) -> (B, outputs).

    Raises NotImplementedError where C is above 1024, or 512 in float32.
    """
    from kernels.decoding_triton import launch_linear

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
    """Of logits (B, V) / temperature + noise the largest, into `token` and context[:, position].

    noise is (B, N, V), of which `index`, (1), is used, token (B, 1), context (B, places).
    """
    from kernels.decoding_triton import launch_draw

    launch_draw(logits, noise, index, temperature, position, token, context)
