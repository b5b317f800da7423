#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

template <typename scalar_t, typename acc_t>
__global__ void forward_kernel(const scalar_t* from, scalar_t* to, int64_t count, acc_t limit) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) {
    const acc_t value = static_cast<acc_t>(from[i]);
    const acc_t inside = value * acc_t(0);  // keeps NaN
    to[i] = static_cast<scalar_t>(value > limit ? value - limit : value < -limit ? value + limit : inside);
  }
}

template <typename scalar_t, typename acc_t>
__global__ void backward_kernel(
    const scalar_t* values, const scalar_t* from, scalar_t* to, int64_t count, acc_t limit) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) {
    const acc_t value = static_cast<acc_t>(values[i]);
    to[i] = value >= -limit && value <= limit ? static_cast<scalar_t>(0) : from[i];
  }
}

int blocks_for(int64_t count) { return static_cast<int>(std::min<int64_t>((count + 255) / 256, 65536)); }

at::Tensor alike(const at::Tensor& tensor, const at::Tensor& like) {  // in the other one's order of memory
  return tensor.strides() == like.strides() ? tensor : at::empty_like(like).copy_(tensor);
}

class Softshrink : public torch::autograd::Function<Softshrink> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& self, double lambd) {
    ctx->save_for_backward({self});
    ctx->saved_data["lambd"] = lambd;
    at::Tensor result = at::empty_like(self);  // dense, with the strides that PyTorch's own result has
    at::Tensor x = alike(self, result);
    const int64_t count = x.numel();
    if (count == 0) return result;  // a grid of 0 blocks is an error
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "softshrink", [&] {
      using acc_t = at::opmath_type<scalar_t>;  // float for 16 bits
      forward_kernel<scalar_t, acc_t><<<blocks_for(count), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
          x.const_data_ptr<scalar_t>(), result.mutable_data_ptr<scalar_t>(), count, static_cast<acc_t>(lambd));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return result;
  }

  // The gradient of each result comes in, in any memory layout; one goes out for each argument of forward.
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads) {
    const at::Tensor self = ctx->get_saved_variables()[0];
    const double lambd = ctx->saved_data["lambd"].toDouble();
    at::Tensor out = at::empty_like(self);
    at::Tensor x = alike(self, out), grad = alike(grads[0], out);
    const int64_t count = x.numel();
    if (count == 0) return {out, at::Tensor()};
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "softshrink_backward", [&] {
      using acc_t = at::opmath_type<scalar_t>;
      backward_kernel<scalar_t, acc_t><<<blocks_for(count), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
          x.const_data_ptr<scalar_t>(), grad.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>(), count,
          static_cast<acc_t>(lambd));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {out, at::Tensor()};
  }
};

at::Tensor softshrink_kernel_impl(const at::Tensor& self, double lambd) {
  return Softshrink::apply(self, lambd);
}
