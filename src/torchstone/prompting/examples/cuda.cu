#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

template <typename scalar_t, typename acc_t>
__global__ void softshrink(const scalar_t* from, scalar_t* to, int64_t count, acc_t limit) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) {
    const acc_t value = static_cast<acc_t>(from[i]);
    const acc_t inside = value * acc_t(0);  // keeps NaN
    to[i] = static_cast<scalar_t>(value > limit ? value - limit : value < -limit ? value + limit : inside);
  }
}

at::Tensor softshrink_kernel_impl(const at::Tensor& self, double lambd) {
  at::Tensor result = at::empty_like(self);  // dense, with the strides that PyTorch's own result has
  // Both in the same order of memory, so that one loop goes through both.
  at::Tensor x = self.strides() == result.strides() ? self : at::empty_like(self).copy_(self);
  const int64_t count = x.numel();
  if (count == 0) return result;  // a grid of 0 blocks is an error
  const int blocks = static_cast<int>(std::min<int64_t>((count + 255) / 256, 65536));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "softshrink", [&] {
    using acc_t = at::opmath_type<scalar_t>;  // float for 16 bits
    softshrink<scalar_t, acc_t><<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<scalar_t>(), result.mutable_data_ptr<scalar_t>(), count, static_cast<acc_t>(lambd));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return result;
}
