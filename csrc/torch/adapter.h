// Turns an operation over fw::Tensor into a function over a binding's own tensors. A binding is a
// struct Torch with the types Tensor, Guard(device) and Allocation(device) and the functions
// View(tensor), IsMeta(tensor), ParallelFor, and Scratch(allocation, count).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "torch/bind.h"
#include "torch/ops.h"
#include "torch/tensor.h"

namespace fw {

template <class Torch, auto operation>
struct Adapter;

template <class Torch, class... Args, void (*operation)(const Runtime&, Args...)>
struct Adapter<Torch, operation> {
  // const fw::Tensor& becomes the binding's tensor; numbers stay.
  template <class Arg>
  using Native =
      std::conditional_t<std::is_same_v<Arg, const Tensor&>, const typename Torch::Tensor&, Arg>;

  // The CPU and the CUDA implementation.
  static void Run(Native<Args>... args) { Call(View(args)...); }

  // The Meta implementation: nothing is returned, so there is no shape to infer, and sizes may be
  // symbols; checks happen when the operation runs. A meta tensor among others is refused here,
  // since torch would call this for them all and nothing would be computed.
  static void Meta(Native<Args>... args) {
    if (!(IsMeta(args) && ...)) {
      throw std::runtime_error("freewheel: some tensors are on the meta device and some are not");
    }
  }

 private:
  static Tensor View(const typename Torch::Tensor& tensor) { return Torch::View(tensor); }
  template <class Number>
  static std::enable_if_t<std::is_arithmetic_v<Number>, Number> View(Number number) {
    return number;
  }

  static bool IsMeta(const typename Torch::Tensor& tensor) { return Torch::IsMeta(tensor); }
  template <class Number>
  static std::enable_if_t<std::is_arithmetic_v<Number>, bool> IsMeta(Number) {
    return true;
  }

  static int32_t Device(const Tensor& tensor) { return tensor.cuda ? tensor.device : -1; }
  template <class Number>
  static std::enable_if_t<std::is_arithmetic_v<Number>, int32_t> Device(Number) {
    return -1;
  }

  template <class... Views>
  static void Call(const Views&... views) {
    int32_t device = -1;  // of the first CUDA tensor
    static_cast<void>(((device = device < 0 ? Device(views) : device), ...));
    typename Torch::Allocation allocation(device);
    const Runtime runtime = {Torch::ParallelFor, Torch::Scratch, &allocation};
    if (device >= 0 && HasTorchCuda()) {
      const typename Torch::Guard guard(device);
      operation(runtime, views...);
    } else {
      operation(runtime, views...);
    }
  }
};

}  // namespace fw
