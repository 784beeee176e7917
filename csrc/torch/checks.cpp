#include "torch/checks.h"

#include <stdexcept>

namespace fw {
namespace {

const char* DtypeText(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBFloat16:
      return "bfloat16";
    case Dtype::kInt32:
      return "int32";
    case Dtype::kInt64:
      return "int64";
    case Dtype::kOther:
      break;
  }
  return "another dtype";
}

std::string NameOf(const Tensor& tensor) {
  return tensor.dtype == Dtype::kOther ? tensor.dtype_name : DtypeText(tensor.dtype);
}

std::string DeviceText(const Tensor& tensor) {
  return tensor.cuda ? "cuda:" + std::to_string(tensor.device) : "cpu";
}

bool Empty(const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.dim; ++i) {
    if (tensor.sizes[i] == 0) return true;
  }
  return false;
}

}  // namespace

std::string ShapeText(const int64_t* sizes, int64_t dim) {
  std::string text = "[";
  for (int64_t i = 0; i < dim; ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

void Call::Fail(const char* argument, const std::string& what) const {
  throw std::runtime_error(std::string(operation_) + ": " + argument + " " + what);
}

void Call::Leads(const char* argument, const Tensor& tensor) {
  if (tensor.dtype != Dtype::kFloat32 && tensor.dtype != Dtype::kFloat16 &&
      tensor.dtype != Dtype::kBFloat16) {
    Fail(argument, "must be float32, float16 or bfloat16, not " + NameOf(tensor));
  }
  leader_name_ = argument;
  leader_ = &tensor;
}

void Call::Follows(const char* argument, const Tensor& tensor) const {
  if (tensor.dtype != leader_->dtype) {
    Fail(argument, "is " + NameOf(tensor) + ", but " + leader_name_ + " is " + NameOf(*leader_));
  }
  OnDevice(argument, tensor);
}

void Call::Typed(const char* argument, const Tensor& tensor, Dtype dtype) const {
  if (tensor.dtype != dtype) {
    Fail(argument, std::string("must be ") + DtypeText(dtype) + ", not " + NameOf(tensor));
  }
  OnDevice(argument, tensor);
}

void Call::OnDevice(const char* argument, const Tensor& tensor) const {
  if (tensor.cuda != leader_->cuda || tensor.device != leader_->device) {
    Fail(argument, "is on " + DeviceText(tensor) + ", but " + leader_name_ + " is on " +
                       DeviceText(*leader_));
  }
}

void Call::Rank(const char* argument, const Tensor& tensor, int64_t dim) const {
  if (tensor.dim != dim) {
    Fail(argument, "must have " + std::to_string(dim) + " dimensions, not shape " +
                       ShapeText(tensor.sizes, tensor.dim));
  }
}

void Call::Shape(const char* argument, const Tensor& tensor,
                 std::initializer_list<int64_t> sizes) const {
  bool same = tensor.dim == static_cast<int64_t>(sizes.size());
  for (int64_t i = 0; same && i < tensor.dim; ++i) same = tensor.sizes[i] == sizes.begin()[i];
  if (same) return;
  Fail(argument, "must have shape " + ShapeText(sizes.begin(), static_cast<int64_t>(sizes.size())) +
                     ", not " + ShapeText(tensor.sizes, tensor.dim));
}

void Call::LastContiguous(const char* argument, const Tensor& tensor) const {
  const int64_t last = tensor.dim - 1;
  if (last < 0 || Empty(tensor) || tensor.sizes[last] == 1 || tensor.strides[last] == 1) return;
  Fail(argument,
       "must have a last dimension of stride 1, not " + std::to_string(tensor.strides[last]));
}

void Call::Contiguous(const char* argument, const Tensor& tensor) const {
  int64_t expected = 1;
  if (Empty(tensor)) return;
  for (int64_t i = tensor.dim - 1; i >= 0; --i) {
    if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) {
      Fail(argument, "must be contiguous; its strides are " +
                         ShapeText(tensor.strides, tensor.dim) + " with shape " +
                         ShapeText(tensor.sizes, tensor.dim));
    }
    expected *= tensor.sizes[i];
  }
}

void Call::Distinct(const char* argument, const Tensor& tensor) const {
  if (Empty(tensor)) return;
  // From the smallest stride up, each must clear all that the dimensions below it span.
  int64_t span = 1;
  int64_t below = -1;
  int64_t below_dim = -1;
  for (int64_t step = 0; step < tensor.dim; ++step) {
    int64_t next = -1;
    for (int64_t i = 0; i < tensor.dim; ++i) {
      const int64_t stride = tensor.strides[i];
      const bool above = stride > below || (stride == below && i > below_dim);
      if (above && (next < 0 || stride < tensor.strides[next])) next = i;
    }
    below = tensor.strides[next];
    below_dim = next;
    if (tensor.sizes[next] == 1) continue;
    if (below < span) {
      Fail(argument, "is written to, so its elements must not overlap; its strides are " +
                         ShapeText(tensor.strides, tensor.dim) + " with shape " +
                         ShapeText(tensor.sizes, tensor.dim));
    }
    span += below * (tensor.sizes[next] - 1);
  }
}

}  // namespace fw
