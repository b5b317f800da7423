#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace {

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

  // The gradient of each result comes in, in any memory layout; one goes out for each argument of forward.
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads) {
    const at::Tensor self = ctx->get_saved_variables()[0];
    const double lambd = ctx->saved_data["lambd"].toDouble();
    at::Tensor out = at::empty_like(self);
    at::Tensor x = alike(self, out), grad = alike(grads[0], out);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "softshrink_backward", [&] {
      using acc_t = at::opmath_type<scalar_t>;
      const scalar_t* values = x.const_data_ptr<scalar_t>();
      const scalar_t* from = grad.const_data_ptr<scalar_t>();
      scalar_t* to = out.mutable_data_ptr<scalar_t>();
      const acc_t limit = static_cast<acc_t>(lambd);
      at::parallel_for(0, x.numel(), 32768, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const acc_t value = static_cast<acc_t>(values[i]);
          to[i] = value >= -limit && value <= limit ? scalar_t(0) : from[i];
        }
      });
    });
    return {out, at::Tensor()};
  }
};

}  // namespace

at::Tensor softshrink_kernel_impl(const at::Tensor& self, double lambd) {
  return Softshrink::apply(self, lambd);
}
