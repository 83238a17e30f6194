// Autocast on the modelled GPU: the policies that PyTorch has for CUDA (aten/src/ATen/autocast_mode.cpp).

#include "modelled.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#define MEMLAB_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define MEMLAB_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define MEMLAB_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define MEMLAB_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

namespace memlab {

void register_autocast() {
  using namespace at::autocast;
  static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFallthrough());

  static torch::Library m(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  AT_FORALL_LOWER_PRECISION_FP(MEMLAB_LOWER_PRECISION)
  AT_FORALL_FP32(MEMLAB_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(MEMLAB_FP32_SET_OPT_DTYPE)
  AT_FORALL_PROMOTE(MEMLAB_PROMOTE)
}

} // namespace memlab
