// Checks of one call's arguments. Each throws std::runtime_error (RuntimeError in Python) with a
// sentence "operation: argument ...".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "torch/tensor.h"

namespace fw {

class Call {
 public:
  explicit Call(const char* operation) : operation_(operation) {}

  [[noreturn]] void Fail(const char* argument, const std::string& what) const;

  // The argument that sets the call's device and dtype: float32, float16 or bfloat16.
  void Leads(const char* argument, const Tensor& tensor);
  // Of the leader's dtype and on its device.
  void Follows(const char* argument, const Tensor& tensor) const;
  // Of this dtype and on the leader's device.
  void Typed(const char* argument, const Tensor& tensor, Dtype dtype) const;

  void Rank(const char* argument, const Tensor& tensor, int64_t dim) const;
  void Shape(const char* argument, const Tensor& tensor,
             std::initializer_list<int64_t> sizes) const;
  // The last dimension lies close together.
  void LastContiguous(const char* argument, const Tensor& tensor) const;
  void Contiguous(const char* argument, const Tensor& tensor) const;
  // Written to: no two elements share memory.
  void Distinct(const char* argument, const Tensor& tensor) const;

  const Tensor& leader() const { return *leader_; }
  int32_t dtype() const { return static_cast<int32_t>(leader_->dtype); }

 private:
  void OnDevice(const char* argument, const Tensor& tensor) const;

  const char* operation_;
  const char* leader_name_ = "";
  const Tensor* leader_ = nullptr;
};

// "[2, 3]"
std::string ShapeText(const int64_t* sizes, int64_t dim);

}  // namespace fw
