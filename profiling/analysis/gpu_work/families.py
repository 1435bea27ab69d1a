"""Classify kernels by name: the part of a model's work that each one does.

KERNELS holds all that is known of names: those of NVIDIA's and AMD's libraries, of PyTorch, Triton,
inductor, XLA, CuPy, and of the libraries that training and serving use: FlashAttention, vLLM,
SGLang, FlashInfer, AITER, TensorRT-LLM, DeepEP, ...
Batched matrix products of an attention that is not fused count as matrix products: names cannot
tell what for. Attention includes what replaces it: linear attention, state spaces.
"""

import re
from functools import cache

import numpy as np

from profiling.analysis.columns import used_names
from profiling.shared.kernel_names import fused_attention

FAMILIES = (
    "gemm",
    "convolution",
    "attention",
    "softmax",
    "norm",
    "elementwise",  # activations, rotary embeddings and quantisation too
    "dropout",
    "optimizer",
    "reduction",
    "signal",  # pooling, resampling, Fourier transforms
    "embedding",
    "indexing",  # gathers, scatters, sorts and scans
    "routing",  # of a mixture of experts; its products are gemm
    "loss",
    "copy",
    "communication",
    "other",
)
EMBEDDING, INDEXING = FAMILIES.index("embedding"), FAMILIES.index("indexing")

# Patterns for words of a name in lower case: the first row with a match decides. So special kernels
# come before the library whose name they have, such as cuDNN's batch norm and its transposes before
# its convolutions.
KERNELS = (
    (
        "communication",  # DeepEP's kernels are known by their namespaces; copies too, among GPUs
        r"""
        ^\[cuda.memcpy.peer-to-peer
        nccl rccl mscclk nvshmem multimem_ symm_mem userbuffers ::comm:: (all|cross_device)_?reduce
        quick_?reduce all_?gather reduce_?scatter all_?to_?all all2all _a2a a2a_
        a2a(dispatch|combine) (one|two)_?shot deep_ep:: int(er|ra)node(_ll)?(::|\d)
        notify_dispatch ep(dispatch|combine)
        """,
    ),
    (
        # from layout to layout, to windows and back (F.unfold, F.fold, which a convolution by a
        # product begins or ends with), and into a cache of keys and values
        "copy",
        r"""
        ((im|vol)2col|col2(im|vol))\w*_kernel im2d2col
        nchw_?to_?nhwc nhwc_?to_?nchw batched_transpose transpose_(cnhw|nchw|fp32) cubetranspose
        tensortransform and_cache store_kv_?cache set_kv?_ appendpagedkv copy_page rocclr_copy
        """,
    ),
    (
        "indexing",  # CuPy's names begin with its own, and end with types
        r"""
        ^cupy_\w*(take|scatter|getitem|choose|adv_|nonzero|scan|cumsum|cumprod|bsum|searchsorted)
        ^cupy_\w*(bincount|histogram|digitize|sort|unique)
        """,
    ),
    ("copy", r"^cupy_\w*(copy(?!sign)|concatenate|transpose|roll|repeat|tile|stack|_pad)"),
    (
        "reduction",
        r"""
        ^cupy_\w*(sum|prod|mean|var|std|norm|median|count_nonzero|ptp)(?![a-z])
        ^cupy_(arg|nan|nanarg|a)?(max|min)(?![a-z]) ^cupy_(all|any)(?![a-z])
        """,
    ),
    ("elementwise", r"^cupyx?_"),
    ("softmax", r"attn_softmax"),
    (
        "attention",  # the last two lines: linear attention, state spaces
        r"""
        attn attention fmha mha_(fwd|bwd) kernel_mha sdpa flash_(fwd|bwd) flash:: [gm]qa_
        (?<![a-z])(mla|pa|sage)_ with(paged|ragged)?kvcache merge_?states? reduce_segments
        compute_dot_do_o convert_dq_to_16bits philox::unpack bwd_preprocess
        bwd_kernel_(d[kq]|fuse) ^_fwd_(grouped_)?kernel(_stage\d)?(\.kd)?$ ms_deform
        delta_(rule|net) chunk_(scan|state|cumsum|fwd_kernel|bwd_kernel) state_passing
        selective_(scan|state) fused_recurrent recompute_w_u wy_repr flashkda (gdn|kda)_
        """,
    ),
    (
        "gemm",  # at the end this project's own, with or without GELU
        r"""
        matmul_ogs fused_moe_(gptq_awq_)?kernel fmoe mfma_moe (moe|router)\w*gemm marlin
        ^linear_(streamed_)?((for|back)ward_gelu_)?triton
        """,
    ),
    (
        "routing",
        r"""
        (?<![a-z])moe expert rout(ing|er) topk_?(gating|softmax|sigmoid) grouped_?topk
        _topk_forward topk_idx _(un)?permute_kernel permute_with_mask row_id_map expandinputrows
        stridestma bitmatrix finalize_matmul get_dispatch_layout expand_to_fused reduce_fused
        get_fused_mapping
        """,
    ),
    (
        "loss",  # the fifth parameter of softmax_warp says whether it is the logarithm
        r"""
        nll_loss loss_(fwd|bwd|forward|backward) cross_?entropy xentropy ctc_loss kl_?div
        jsd_kernel log_?softmax softmax_warp_\w+<[^<>]+,\s(\(int\))?\d+,\s(\(bool\)1|true),
        """,
    ),
    ("softmax", r"soft_?max"),
    (
        "norm",
        r"""
        (layer|rms|group|batch|instance|qk?|l2)_?norm _norm_(fwd|bwd|forward|backward|kernel)
        ln_(fwd|bwd)_ bn_(fw|bw)_ gammabeta cucomputegradinput rowwisemoments welford_kernel
        compute(internalgradients|(backward)?fusedparams)cuda
        """,
    ),
    (
        "signal",
        r"""
        (max|av[eg]|average)_?pool pooling adaptive_ upsample interpolat resize grid_sampl
        roi_align
        """,
    ),
    (
        "elementwise",
        r"(op|add)_(generic_)?tensor scale(packed)?tensor cudnn::ops:: doactivation elementwise_fp",
    ),
    (
        "convolution",
        r"""
        cudnn(_|::|\d) (xmma_|\d)fprop dgrad wgrad winograd implicit_gemm igemm_(fwd|bwd|wrw)
        bwd_(weight|data) conv(?!er) fft[12]d_[rc]2[rc] flip_filter
        precompute_indices
        """,
    ),
    (
        "signal",  # FFTs of cuFFT, rocFFT and VkFFT; those with which cuDNN convolves are above
        r"""
        (regular|vector|multi|composite|bluestein)\w*_?fft [sd]pradix\d bluestein (cu|roc|vk)fft
        (?<![a-z])i?r?fft(_|\d|<) _fft(_|\b)
        """,
    ),
    (
        "gemm",  # the last lines: the products of Muon; factorisations, and systems solved by them
        r"""
        (?<!fb)gemm gemv nvjet xmma cutlass(_|\d|::(gemm|kernel|device_kernel)) cublas cijk_
        split_?k_?reduce (\b|_)bmm_ s884 s1688 s16816 matmul mul_mat scaled_mm einsum
        ^(volta|turing|ampere|hopper|blackwell)_ wvsplitk llmm1 w8a8 w4a16 epilogue::
        xxt_kernel ba_plus_caa ^fc-dtype
        (?<![a-z])[sdcz]?(getr[fs]|potr[fsi]|geqrf|trs[mv]|syrk|trmm)(?![a-z])
        """,
    ),
    (
        "elementwise",
        r"rotary _rope rope_ biasrope quantize qparam _to_float float_to_ cast_(and_)?transpose",
    ),
    (
        "embedding",
        r"""
        embedding _embs_ fbgemm compute_grad_weight krn_partial partial_segment sum_and_scatter
        bounds_check_ind linearize_index recat_
        """,
    ),
    (
        "indexing",
        r"""
        indexing_backward index_?(select|func|add|put|copy|fill|elementwise) scatter_gather
        (gather|scatter)_?(kernel|elementwise|fusion) ^(wrapped_)?(scatter|gather)
        get_rows searchsorted write_indices radix_?sort bitonicsort merge_?sort ^(wrapped_)?sort
        onesweep topk unique_by_key histogram bincount ::scan:: kernel_scan lookback_scan devicescan
        scan_(inner|outer)most cumsum cumprod devicecompact devices(can|elect)
        (scan|partition|sort|select)_(config|impl) partition_kernel compute_cuda_kernel
        """,
    ),
    ("dropout", r"dropout masked_scale"),
    (
        "optimizer",
        r"""
        multi_tensor_apply (?<!h)adam adagrad lamb(?!d) muon (\b|_)(sgd|lion)_ optimizer lpnorm
        amp_update_scale non_finite
        """,
    ),
    (
        "reduction",  # at the end this project's own sums over ranks
        r"""
        reduce_kernel devicereduce ::reduce:: reduce_1block dot_kernel reduce_(config|impl|fusion)
        reduce_sum vector_norm amax ^mean_of_parts_triton input_(?!concat|transpose|slice)\w*fusion
        ^wrapped_reduce
        """,
    ),
    (
        "copy",
        r"""
        copy(?!sign) catarray memcpy cpy_ chunk_cat transpose swap_first_dims roll_cuda
        (reflection|replication|constant)_pad cat\.out (concatenate|slice|pad|update)_fusion
        ^wrapped_(concatenate|slice|pad|broadcast|dynamic)
        """,
    ),
    (
        "elementwise",  # at the end names of early inductor, and MTIA's
        r"""
        elementwise pointwise element_mul distribution_ fillfunctor fillbuffer memset triu_tril
        arange range_kernel clamp silu gelu relu swiglu geglu activation _and_mul
        _act_(kernel|quant) lstm_cell gru_cell hadamard quant _cast(_|\b) (?<![a-z])cast_ cvt_
        _fp8 bin_bcast subtensorop loop_\w*fusion ^fusion(_\d+)?$ ^wrapped_ slot_mapping
        transform_(config|kernel) kv_indices token_ids ^triton__\d
        (add|mul(_const)?|div(ide)?|log2|sqrt|exp|sigmoid(_backward)?)(\.out)?-dtype
        """,
    ),
)
ROWS = tuple((family, re.compile("|".join(words.split()))) for family, words in KERNELS)

# triton_{pointwise,persistent reduction,reduction,template}_fused_{operators}_{number}, followed in
# the first releases by what Triton knew of the arguments
INDUCTOR = re.compile(
    r"^triton_(poi|per|red|tem|mm|for|spl|unk|mix)_(?:fused_)?(.*?)(?:_?\d+)?(?:_\d+d[\dcde]*)?$"
)
OPERATORS = (  # the same for names of operators that inductor fused
    ("attention", re.compile(r"flex_attention")),
    ("loss", re.compile(r"nll_loss|log_softmax|cross_entropy")),
    ("softmax", re.compile(r"softmax")),
    ("optimizer", re.compile(r"adam|_foreach|addcdiv|lerp")),
    # the last two are a norm that was written out; inductor sorts operators by name
    ("norm", re.compile(r"(layer|rms|group|batch)_norm|var_mean|mean\w*_pow\w*_rsqrt")),
    ("embedding", re.compile(r"embedding")),
    ("dropout", re.compile(r"dropout")),
)
# what an embedding shares with other programs: looking rows up, and sorting its gradient's rows
SHARED = re.compile(r"indexselect|vectorized_gather|sort|onesweep|scan|unique_by_key|compact", re.I)
MOVES = (  # operators that compute nothing: a kernel fused of these alone is a copy
    r"_?(to_copy|unsafe_view|view|reshape|clone|transpose|permute|t|cat|split|slice|select|expand|"
    r"unsqueeze|squeeze|as_strided|copy|select_backward|slice_backward|stack|alias|detach)_?"
)


@cache  # a report asks for each name more than once, and ranks have the same names
def family_of(name: str) -> str:
    """One of FAMILIES."""
    if inductor := INDUCTOR.match(name):
        return inductor_family(*inductor.groups())
    if fused_attention([name]):
        return "attention"
    return first_match(ROWS, name.lower()) or "other"


def inductor_family(kind: str, operators: str) -> str:
    if kind in ("tem", "mm") and "attention" not in operators:
        return "convolution" if "convolution" in operators else "gemm"
    if family := first_match(OPERATORS, operators):
        return family
    if re.fullmatch(rf"(?:{MOVES})+", operators):
        return "copy"
    if kind == "for":  # over lists of tensors, which only optimizers have
        return "optimizer"
    return "elementwise" if kind == "poi" else "reduction"


def first_match(rows: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str | None:
    return next((family for family, pattern in rows if pattern.search(text)), None)


def ms_by_family(family: np.ndarray, took_ns: np.ndarray, steps: int) -> dict[str, float]:
    """Milliseconds a step of each family that occurs; `family` holds indices in FAMILIES."""
    total = np.zeros(len(FAMILIES), np.int64)
    np.add.at(total, family, took_ns)
    return {FAMILIES[i]: int(total[i]) / 1e6 / steps for i in np.flatnonzero(total).tolist()}


def families_of(names: list[str], name: np.ndarray) -> np.ndarray:
    """(names,) index in FAMILIES of each, or -1 for one that is not in the column `name`.

    Beside kernels that only an embedding has, those of SHARED count as embedding too.
    """
    families = np.full(len(names), -1, np.int8)
    for row in used_names(name):
        families[row] = FAMILIES.index(family_of(names[row]))
    if np.any(families == EMBEDDING):
        for row in np.flatnonzero(families == INDEXING).tolist():
            families[row] = EMBEDDING if SHARED.search(names[row]) else INDEXING
    return families


def gelu_in_products(names: list[str]) -> bool:
    """Whether this project's own matrix products computed GELU and its gradient."""
    return any(re.match(r"linear_(streamed_)?(for|back)ward_gelu_triton", name) for name in names)


def attention_backend(names: list[str]) -> str | None:
    """The attention backend, from the names of the kernels that ran; None without any name.

    "slow" if no fused kernel ran but a softmax did, "unknown" if neither did.
    """
    if not names:
        return None
    if fused := fused_attention(names):
        return max(fused, key=lambda backend: len(fused[backend]))
    families = {family_of(name) for name in names}
    return "slow" if "softmax" in families and "attention" not in families else "unknown"
