// Squares each element. Compiled by profiling.lab.square_cuda on first use.

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdint>

namespace {

constexpr int kThreads = 256;
// As many as an SM holds at once: a thread then has several elements to load, not only one, and the
// time that starting a block takes is spent once.
constexpr int64_t kBlocksPerMultiprocessor = 2048 / kThreads;

// bfloat16 and float16 are squared in float and rounded once, as PyTorch does.
__device__ inline double squared(double x) { return x * x; }
__device__ inline float squared(float x) { return x * x; }
template <typename Half>
__device__ inline Half squared(Half x) {
  const float wide = static_cast<float>(x);
  return static_cast<Half>(wide * wide);
}

// A thread strides over the grid, so any number of elements is covered by any number of blocks.
template <typename Element>
__global__ void square_kernel(const Element* __restrict__ source, Element* __restrict__ target,
                              int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
#pragma unroll 4
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    target[i] = squared(source[i]);
  }
}

}  // namespace

at::Tensor square(const at::Tensor& source) {
  TORCH_CHECK_VALUE(source.is_cuda(), "square: needs a CUDA tensor, this one is on ",
                    source.device());
  TORCH_CHECK_VALUE(source.is_contiguous(), "square: needs a contiguous tensor");
  TORCH_CHECK_VALUE(source.is_floating_point(), "square: needs floating point, this one is ",
                    source.scalar_type());
  const c10::cuda::CUDAGuard guard(source.device());
  at::Tensor target = at::empty_like(source);
  const int64_t count = source.numel();
  if (count == 0) return target;  // a grid of no blocks is an error
  const int64_t at_once =
      at::cuda::getCurrentDeviceProperties()->multiProcessorCount * kBlocksPerMultiprocessor;
  const int blocks = static_cast<int>(std::min((count + kThreads - 1) / kThreads, at_once));
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, source.scalar_type(), "square", [&] {
        square_kernel<scalar_t><<<blocks, kThreads, 0, stream>>>(
            source.const_data_ptr<scalar_t>(), target.mutable_data_ptr<scalar_t>(), count);
      });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return target;
}
