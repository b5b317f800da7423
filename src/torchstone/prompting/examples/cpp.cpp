#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

at::Tensor softshrink_kernel_impl(const at::Tensor& self, double lambd) {
  at::Tensor result = at::empty_like(self);  // dense, with the strides that PyTorch's own result has
  // Both in the same order of memory, so that one loop goes through both.
  at::Tensor x = self.strides() == result.strides() ? self : at::empty_like(self).copy_(self);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "softshrink", [&] {
    using acc_t = at::opmath_type<scalar_t>;  // float for 16 bits
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = result.mutable_data_ptr<scalar_t>();
    const acc_t limit = static_cast<acc_t>(lambd);
    at::parallel_for(0, x.numel(), 32768, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const acc_t value = static_cast<acc_t>(from[i]);
        const acc_t inside = value * acc_t(0);  // keeps NaN
        to[i] = static_cast<scalar_t>(value > limit ? value - limit : value < -limit ? value + limit : inside);
      }
    });
  });
  return result;
}
