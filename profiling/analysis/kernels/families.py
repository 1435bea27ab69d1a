"""Which part of a transformer's work a kernel does, by its name.

Knows the names of cuBLAS, cuDNN and CUTLASS from Volta to Blackwell, FlashAttention 2 and 3,
PyTorch's own kernels, NCCL, and what inductor calls the Triton kernels it generates. Batched matrix
products of an attention that is not fused are matrix products: names cannot tell what for.
"""

import re

import numpy as np

from profiling.analysis.columns import used
from profiling.kernel_names import fused_attention

FAMILIES = (
    "gemm",
    "attention",
    "softmax",
    "norm",
    "elementwise",
    "dropout",
    "optimizer",
    "reduction",
    "embedding",
    "loss",
    "copy",
    "communication",
    "other",
)

# in a kernel's name: the first that is found decides
PATTERNS = {
    "communication": r"nccl|nvshmem|(all|cross_device)_?reduce|AllReduce|multimem_",
    "attention": r"fmha|flash_(fwd|bwd)|[fF]lash_?[aA]tt|sdpa|flex_attention|Attention\w*Kernel|"
    r"compute_dot_do_o|convert_dq_to_16bits|philox::unpack|mha_(fwd|bwd)",
    # the fifth parameter of these templates says whether it is the logarithm of the softmax
    "loss": r"nll_loss|cross_entropy|LogSoftMax|log_softmax|"
    r"softmax_warp_\w+<[^<>]+, (\(int\))?\d+, (\(bool\)1|true),",
    "softmax": r"[sS]oft_?[mM]ax",
    "norm": r"[lL]ayer_?[nN]orm|GammaBeta|RowwiseMoments|(RMS|rms_|[gG]roup_?|[bB]atch_?)[nN]orm",
    "gemm": r"gemm|gemv|nvjet|cutlass|xmma|splitK|[sS]plit_?k_?reduce|cublas|\bbmm|s884|s1688|"
    r"s16816|^(volta|turing|ampere|hopper|blackwell)_|cudnn.*conv|implicit_convolve",
    # sorting, scanning and gathering is how PyTorch sums an embedding's gradient
    "embedding": r"[eE]mbedding|compute_grad_weight|krn_partial|partial_segments|sum_and_scatter|"
    r"radix_sort|RadixSort|unique_by_key|::scan::|index_?[sS]elect|gather_kernel",
    "dropout": r"[dD]ropout|masked_scale",
    "optimizer": r"[aA]dam|multi_tensor_apply|FusedOptimizer|lpnorm|amp_update_scale|non_finite",
    "reduction": r"reduce_kernel|DeviceReduce|::reduce::|reduce_1Block|dot_kernel",
    "copy": r"_copy_kernel|CatArray|[mM]emcpy|split_with_sizes_copy|chunk_cat|transpose_kernel",
    "elementwise": r"elementwise|distribution_|FillFunctor|triu_tril|arange|range_kernel",
}

# triton_{pointwise,persistent reduction,reduction,template}_fused_{operators}_{number}
INDUCTOR = re.compile(r"^triton_(poi|per|red|tem|mm|for)_(?:fused_)?(.*?)_?\d*$")
OPERATORS = {  # among what inductor fused, likewise
    "attention": r"flex_attention|scaled_dot_product",
    "loss": r"nll_loss|log_softmax|cross_entropy",
    "softmax": r"softmax",
    "norm": r"layer_norm|rms_norm|group_norm|batch_norm",
    "optimizer": r"adam|_foreach|addcdiv|addcmul",
    "embedding": r"embedding",
    "dropout": r"dropout",
}
MOVES = (  # operators that compute nothing: a kernel fused of these alone is a copy
    r"_?(to_copy|unsafe_view|view|reshape|clone|transpose|permute|t|cat|split|slice|select|expand|"
    r"unsqueeze|squeeze|as_strided|copy|select_backward|slice_backward|stack|alias|detach)_?"
)


def family_of(name: str) -> str:
    """One of FAMILIES."""
    if inductor := INDUCTOR.match(name):
        return inductor_family(*inductor.groups())
    if any(fused_attention([name])):
        return "attention"
    neither = "elementwise" if name.startswith("triton_poi") else "other"
    return first_found(PATTERNS, name) or neither


def inductor_family(kind: str, operators: str) -> str:
    if family := first_found(OPERATORS, operators):
        return family
    if kind in ("tem", "mm"):
        return "gemm"
    if re.fullmatch(rf"(?:{MOVES})+", operators):
        return "copy"
    return "elementwise" if kind in ("poi", "for") else "reduction"


def first_found(patterns: dict[str, str], text: str) -> str | None:
    return next((family for family in patterns if re.search(patterns[family], text)), None)


def families_of(names: list[str], name: np.ndarray) -> np.ndarray:
    """An index in FAMILIES for each of `names`, -1 for those that no row of `name` points to."""
    families = np.full(len(names), -1, np.int8)
    for row in used(name):
        families[row] = FAMILIES.index(family_of(names[row]))
    return families


def attention_backend(names: list[str]) -> str | None:
    """What computed attention, from the names of the kernels that ran; None without any.

    "slow" where no fused kernel ran but a softmax did, "unknown" where neither shows.
    """
    if not names:
        return None
    if fused := fused_attention(names):
        return max(fused, key=lambda backend: len(fused[backend]))
    found = {family_of(name) for name in names}
    return "slow" if "softmax" in found and "attention" not in found else "unknown"
