"""Kernel names to families: names of five generations of GPUs, and all of the real captures."""

import pytest

from profiling.analysis.kernels.families import FAMILIES, attention_backend, family_of
from tests.helpers.captures import own, report_of

NATIVE = "void at::native::"
NAMES = {
    "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn": "gemm",
    "turing_fp16_s1688gemm_fp16_256x64_sliced1x2_ldg8_f2f_tn": "gemm",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn": "gemm",
    "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1": "gemm",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize64x128x64_warpgroupsize1x1x1": "gemm",
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN": "gemm",
    "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT": "gemm",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_nn>": "gemm",
    "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float>": "gemm",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>": "gemm",
    "triton_tem_fused_mm_4": "gemm",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>": "attention",
    "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloop>>": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7": "attention",
    "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)": "attention",
    "triton_tem_fused_flex_attention_0": "attention",
    "triton_tem_fused__to_copy_flex_attention_backward_zeros_3": "attention",
    "void (anon)::softmax_warp_forward<float, float, float, 8, false, false>(": "softmax",
    "void <unnamed>::softmax_warp_backward<float, float, (int)8, (bool)0, (bool)0>(": "softmax",
    "void <unnamed>::softmax_warp_forward<bf, bf, float, (int)7, (bool)1, (bool)0>(": "loss",
    f"{NATIVE}cunn_SoftMaxForward<8, float, float, at::LogSoftMaxForwardEpilogue>": "loss",
    f"{NATIVE}(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>": "loss",
    f"{NATIVE}(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>": "norm",
    f"{NATIVE}<unnamed>::GammaBetaBackwardCUDAKernelTemplate<float, float>": "norm",
    f"{NATIVE}(anonymous namespace)::fused_dropout_kernel_vec<float, float>": "dropout",
    f"{NATIVE}vectorized_elementwise_kernel<4, void masked_scale_kernel<bool, float>>": "dropout",
    f"{NATIVE}vectorized_elementwise_kernel<8, GeluCUDAKernelImpl(at::Tensor)>": "elementwise",
    f"{NATIVE}unrolled_elementwise_kernel<direct_copy_kernel_cuda(at::TensorIter)>": "copy",
    f"{NATIVE}(anonymous namespace)::CatArrayBatchedCopy<unsigned int>": "copy",
    f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, NormTwoOps>>": "reduction",
    f"{NATIVE}multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>": "optimizer",
    f"{NATIVE}(anonymous namespace)::embedding_backward_feature_kernel<float>": "embedding",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "triton_per_fused__softmax__to_copy_masked_fill_mul_native_dropout_view_4": "softmax",
    "triton_per_fused__to_copy_add_native_layer_norm_native_dropout_view_8": "norm",
    "triton_red_fused__log_softmax_nll_loss_forward_2": "loss",
    "triton_poi_fused__unsafe_view_gelu_5": "elementwise",
    "triton_poi_fused__unsafe_view_add_native_dropout_11": "dropout",
    "triton_poi_fused__unsafe_view_clone_split_transpose_view_3": "copy",
    "triton_red_fused_sum_1": "reduction",
    "something_nobody_has_seen": "other",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_belongs_to_its_family(name):
    assert family_of(name) == NAMES[name]


def test_every_family_but_other_has_a_name_here():
    assert set(NAMES.values()) == set(FAMILIES)


@own
def test_less_than_a_hundredth_of_the_kernel_time_of_a_real_capture_is_unknown(capture):
    of = {row.family: row.percent for row in report_of(capture).families}
    assert of.get("other", 0) < 1
    assert sum(of.values()) == pytest.approx(100)


@own
def test_the_attention_that_ran_in_a_real_capture(capture):
    assert report_of(capture).attention_backend == capture.split("_")[0]


def test_which_attention_ran():
    assert attention_backend([]) is None
    assert attention_backend(["nvjet_a", "void softmax_warp_forward<float>"]) == "slow"
    assert attention_backend(["void pytorch_flash::flash_fwd_kernel<>", "softmax"]) == "flash"
    assert attention_backend(["nvjet_a"]) == "unknown"
