// The modelled GPU as a PyTorch backend (dispatch key PrivateUse1): its allocator, its description, and what recipes need.
//
// Tensors of the modelled GPU live on a device of their own, so what a CPU kernel allocates for itself never mixes with
// device memory: only recipes (recipes.cpp) allocate there, in the order in which the CUDA kernels would.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace memlab {

constexpr c10::DeviceType kModelled = c10::DeviceType::PrivateUse1;

// What the driver takes memory for when it is used first (src/allocator/driver.rs).
enum class First : int32_t { Embedding = 0, BlasHandle = 1, Product = 2, CudnnAttention = 3, CudnnAttentionBackward = 4 };

enum class AttentionFamily : int32_t { Efficient = 0, Flash = 1, Cudnn = 2 };

// What recipes have to know of the GPU; filled from the run's device model. Sizes are bytes.
struct GpuDescription {
  int64_t blas_workspace_bytes;
  int64_t multiprocessors;
  int64_t max_threads_per_multiprocessor;
  AttentionFamily bf16_attention;
  int64_t cudnn_head_size_limit;
  // Whether values are computed. False: kernels only allocate, and tensors have no memory behind them.
  bool compute;
};

const GpuDescription& gpu();

// Registers the backend. Called once, before the first tensor.
void install(const GpuDescription& description);

// The parts of `install` that other files define: recipes.cpp and autocast.cpp.
void register_recipes();
void register_autocast();

// Whether a tensor can be read and written. In an allocation-only run that is true of the host's tensors and of whole numbers in
// small blocks, which steer a program (counts, sizes, orders): such blocks have memory behind them in every run (memory.rs).
bool has_values(const at::Tensor& tensor);

// A tensor of the CPU that shares the memory of `tensor`; undefined stays undefined.
at::Tensor on_host(const at::Tensor& tensor);

// Names the operator on whose behalf this thread allocates, for the recorded history.
class OperatorScope {
 public:
  explicit OperatorScope(const char* name);
  ~OperatorScope();
  OperatorScope(const OperatorScope&) = delete;
  OperatorScope& operator=(const OperatorScope&) = delete;

 private:
  const char* previous_;
};

// Says that the run uses `what`, perhaps for the first time.
void uses(First what);

// Temporary device memory of `bytes`, freed when the handle goes out of scope; the kernels' scratch.
c10::DataPtr scratch(int64_t bytes);

} // namespace memlab

// Implemented in Rust (memory.rs): the accounting. Null means that the modelled allocator refused.
extern "C" {
void* memlab_device_allocate(size_t bytes, const char* operator_name, const char* node_name);
void memlab_device_release(void* address);
// Whether the names of operators and nodes are asked for.
bool memlab_device_is_recorded(void);
// The message of this thread's last refusal, valid until its next.
const char* memlab_device_refusal(void);
// Whether the last refusal was the host's: no memory to back the modelled device with.
bool memlab_device_host_refused(void);
// The run uses something for the first time, or may (memlab::First); on this thread, where threads have their own.
void memlab_device_first(int32_t what);
// An operator ran that has no recipe.
void memlab_device_unknown_operator(const char* name);
}
