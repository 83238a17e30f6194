#include "shim.h"
#include "guarded.h"
#include "modelled.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <dlfcn.h>

#include <cmath>

namespace memlab {

std::string& last_error() {
  thread_local std::string error;
  return error;
}

namespace {

c10::DeviceType device_type(int32_t device) {
  return device == 0 ? c10::kCUDA : kModelled;
}

std::vector<at::Tensor> list(at::Tensor* const* tensors, size_t count) {
  std::vector<at::Tensor> result;
  result.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    result.push_back(*tensors[i]);
  }
  return result;
}

std::vector<at::Scalar> scalars(const double* values, size_t count) {
  return std::vector<at::Scalar>(values, values + count);
}

// native/transformers/cuda/sdp_utils.cpp: select_sdp_backend, and attention.cpp: scaled_dot_product_attention, for training
// without mask and dropout. What no fused kernel takes is computed by the operators of the math fallback.
at::Tensor modelled_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  using memlab::AttentionFamily;
  const int64_t size = query.size(3), sequence = query.size(2);
  const bool half = query.element_size() == 2;
  const AttentionFamily family = half ? gpu().bf16_attention : AttentionFamily::Efficient;
  if (family == AttentionFamily::Cudnn && size % 8 == 0 && size <= gpu().cudnn_head_size_limit && sequence > 1) {
    return std::get<0>(at::_scaled_dot_product_cudnn_attention(query, key, value, std::nullopt, true));
  }
  constexpr int64_t kFlashHeadSizeLimit = 256;
  if (family != AttentionFamily::Efficient && size <= kFlashHeadSizeLimit) {
    // Heads are filled up to a multiple of 8; the scale stays that of the head as it is.
    const int64_t missing = (8 - size % 8) % 8;
    const auto padded = [&](const at::Tensor& tensor) {
      return missing == 0 ? tensor : at::constant_pad_nd(tensor, {0, missing});
    };
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    const at::Tensor result = std::get<0>(at::_scaled_dot_product_flash_attention(
        padded(query), padded(key), padded(value), 0.0, false, false, scale));
    return missing == 0 ? result : result.slice(-1, 0, size);
  }
  if (size % (half ? 8 : 4) == 0) {
    return std::get<0>(at::_scaled_dot_product_efficient_attention(query, key, value, std::nullopt, true));
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value));
}

} // namespace
} // namespace memlab

using memlab::guarded;

extern "C" {

const char* memlab_last_error(void) {
  return memlab::last_error().c_str();
}

uint64_t memlab_libtorch_abi_version(void) {
  return aoti_torch_abi_version();
}

const char* memlab_libtorch_path(void) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&aoti_torch_abi_version), &info) != 0 ? info.dli_fname : "";
}

int32_t memlab_modelled_open(const MemlabGpu* gpu) {
  return guarded([&] {
    memlab::install({
        gpu->blas_workspace_bytes,
        gpu->multiprocessors,
        gpu->max_threads_per_multiprocessor,
        static_cast<memlab::AttentionFamily>(gpu->bf16_attention),
        gpu->cudnn_head_size_limit,
        gpu->compute != 0,
    });
  });
}

int32_t memlab_to_device(const at::Tensor* tensor, int32_t device, at::Tensor** result) {
  return guarded([&] {
    *result = new at::Tensor(tensor->to(at::TensorOptions(c10::Device(memlab::device_type(device), 0))));
  });
}

int32_t memlab_cuda_seed(uint64_t seed) {
  return guarded([&] {
    at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, 0));
    generator.set_current_seed(seed);
  });
}

int32_t memlab_cuda_randint(int64_t high, const int64_t* sizes, size_t dimensions, at::Tensor** result) {
  return guarded([&] {
    *result = new at::Tensor(at::randint(
        high, at::IntArrayRef(sizes, dimensions), at::TensorOptions(c10::Device(c10::kCUDA, 0)).dtype(at::kLong)));
  });
}

int32_t memlab_scalar(const at::Tensor* tensor, double* value) {
  return guarded([&] { *value = tensor->item<double>(); });
}

int32_t memlab_backward(const at::Tensor* loss, int32_t keep_graph) {
  return guarded([&] { loss->backward({}, keep_graph != 0); });
}

int32_t memlab_gradient(const at::Tensor* tensor, at::Tensor** result) {
  return guarded([&] {
    const at::Tensor& gradient = tensor->grad();
    *result = gradient.defined() ? new at::Tensor(gradient) : nullptr;
  });
}

int32_t memlab_clear_gradient(const at::Tensor* tensor) {
  return guarded([&] { tensor->mutable_grad().reset(); });
}

int32_t memlab_attention(
    const at::Tensor* query, const at::Tensor* key, const at::Tensor* value, at::Tensor** result) {
  return guarded([&] {
    const bool modelled = query->device().type() == memlab::kModelled;
    *result = new at::Tensor(
        modelled ? memlab::modelled_attention(*query, *key, *value)
                 : at::scaled_dot_product_attention(*query, *key, *value));
  });
}

int32_t memlab_autocast_enter(int32_t device) {
  return guarded([&] {
    at::autocast::set_autocast_dtype(memlab::device_type(device), at::kBFloat16);
    at::autocast::set_autocast_enabled(memlab::device_type(device), true);
    at::autocast::increment_nesting();
  });
}

int32_t memlab_autocast_exit(int32_t device) {
  return guarded([&] {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(memlab::device_type(device), false);
  });
}

int32_t memlab_foreach_add_list(at::Tensor* const* self, at::Tensor* const* other, size_t count, double alpha) {
  return guarded([&] { at::_foreach_add_(memlab::list(self, count), memlab::list(other, count), alpha); });
}

int32_t memlab_foreach_add_scalar(at::Tensor* const* self, size_t count, double value) {
  return guarded([&] { at::_foreach_add_(memlab::list(self, count), value); });
}

int32_t memlab_foreach_mul_scalar(at::Tensor* const* self, size_t count, double value) {
  return guarded([&] { at::_foreach_mul_(memlab::list(self, count), value); });
}

int32_t memlab_foreach_lerp(at::Tensor* const* self, at::Tensor* const* end, size_t count, double weight) {
  return guarded([&] { at::_foreach_lerp_(memlab::list(self, count), memlab::list(end, count), weight); });
}

int32_t memlab_foreach_addcmul(
    at::Tensor* const* self, at::Tensor* const* left, at::Tensor* const* right, size_t count, double value) {
  return guarded([&] {
    at::_foreach_addcmul_(
        memlab::list(self, count), memlab::list(left, count), memlab::list(right, count), value);
  });
}

int32_t memlab_foreach_sqrt(at::Tensor* const* self, size_t count, at::Tensor** results) {
  return guarded([&] {
    std::vector<at::Tensor> roots = at::_foreach_sqrt(memlab::list(self, count));
    for (size_t i = 0; i < count; ++i) {
      results[i] = new at::Tensor(std::move(roots[i]));
    }
  });
}

int32_t memlab_foreach_div_scalars(at::Tensor* const* self, size_t count, const double* values) {
  return guarded([&] { at::_foreach_div_(memlab::list(self, count), memlab::scalars(values, count)); });
}

int32_t memlab_foreach_addcdiv_scalars(
    at::Tensor* const* self, at::Tensor* const* left, at::Tensor* const* right, size_t count, const double* values) {
  return guarded([&] {
    at::_foreach_addcdiv_(
        memlab::list(self, count),
        memlab::list(left, count),
        memlab::list(right, count),
        memlab::scalars(values, count));
  });
}

} // extern "C"
