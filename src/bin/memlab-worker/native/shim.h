// What the worker needs of libtorch and tch does not have, as C functions.
//
// Every function that can fail returns a Status and leaves the reason in memlab_last_error(), per thread. Tensors are tch's
// handles: pointers to at::Tensor; returned ones are owned by the caller.
#pragma once

#include <cstddef>
#include <cstdint>

namespace at {
class Tensor;
}

extern "C" {

enum MemlabStatus : int32_t { kMemlabOk = 0, kMemlabError = 1 };

const char* memlab_last_error(void);

// ---- devices: 0 is CUDA's current device, 1 the modelled GPU ----

// Opens the CUDA libraries, and lets the allocator reserve at most `capacity` bytes (0: no limit of its own). Of several visible
// GPUs, the one numbered `own` becomes the only one, unless it is negative. Must be the process's first act that involves
// libtorch.
int32_t memlab_cuda_open(uint64_t capacity, int32_t own);
int64_t memlab_cuda_out_of_memory_events(void);
// As cudaRuntimeGetVersion: 13000 is 13.0. 0 where there is none.
int32_t memlab_cuda_runtime_version(void);

// Of the library that runs, not of the headers: major, minor and patch in the highest three bytes; and the library's path.
uint64_t memlab_libtorch_abi_version(void);
const char* memlab_libtorch_path(void);

struct MemlabGpu {
  int64_t blas_workspace_bytes;
  int64_t multiprocessors;
  int64_t max_threads_per_multiprocessor;
  int64_t cudnn_head_size_limit;
  int32_t bf16_attention;
  int32_t compute;
};
int32_t memlab_modelled_open(const MemlabGpu* description);

struct MemlabCudaDevice {
  char name[256];
  uint64_t memory_bytes;
  int32_t compute_capability[2];
  int32_t multiprocessors;
  int32_t driver_version;
};
int32_t memlab_cuda_device_count(int32_t* count);
int32_t memlab_cuda_device(int32_t index, MemlabCudaDevice* device);

// Bytes.
struct MemlabCounters {
  uint64_t allocated;
  uint64_t reserved;
  uint64_t peak_allocated;
  uint64_t device_free;
  uint64_t device_total;
  int64_t out_of_memory_events;
};
// Waits for the device, then reads its allocator's counters.
int32_t memlab_cuda_counters(MemlabCounters* counters);
int32_t memlab_cuda_reset_peak(void);

// Starts recording the allocator's history on CUDA, with at most `max_entries` entries.
int32_t memlab_cuda_record(uint64_t max_entries);
// The recorded snapshot as PyTorch pickles it; `write` is called once.
int32_t memlab_cuda_snapshot(void (*write)(void* context, const char* data, size_t size), void* context);

// ---- tensors ----

int32_t memlab_to_device(const at::Tensor* tensor, int32_t device, at::Tensor** result);
// Integers in [0, high) from CUDA's own generator; memlab_cuda_seed starts it.
int32_t memlab_cuda_seed(uint64_t seed);
int32_t memlab_cuda_randint(int64_t high, const int64_t* sizes, size_t dimensions, at::Tensor** result);

int32_t memlab_scalar(const at::Tensor* tensor, double* value);

int32_t memlab_backward(const at::Tensor* loss, int32_t keep_graph);
// The gradient, or null.
int32_t memlab_gradient(const at::Tensor* tensor, at::Tensor** result);
int32_t memlab_clear_gradient(const at::Tensor* tensor);

// Fused scaled-dot-product attention of (batch, heads, sequence, head size) tensors, by the kernel that the device selects.
int32_t memlab_attention(const at::Tensor* query, const at::Tensor* key, const at::Tensor* value, at::Tensor** result);

// bf16 autocast of the device; leaving drops the cache of casted weights.
int32_t memlab_autocast_enter(int32_t device);
int32_t memlab_autocast_exit(int32_t device);

// ---- tensor lists (torch._foreach_*) ----

int32_t memlab_foreach_add_list(at::Tensor* const* self, at::Tensor* const* other, size_t count, double alpha);
int32_t memlab_foreach_add_scalar(at::Tensor* const* self, size_t count, double value);
int32_t memlab_foreach_mul_scalar(at::Tensor* const* self, size_t count, double value);
int32_t memlab_foreach_lerp(at::Tensor* const* self, at::Tensor* const* end, size_t count, double weight);
int32_t memlab_foreach_addcmul(
    at::Tensor* const* self, at::Tensor* const* left, at::Tensor* const* right, size_t count, double value);
int32_t memlab_foreach_sqrt(at::Tensor* const* self, size_t count, at::Tensor** results);
int32_t memlab_foreach_div_scalars(at::Tensor* const* self, size_t count, const double* values);
int32_t memlab_foreach_addcdiv_scalars(
    at::Tensor* const* self, at::Tensor* const* left, at::Tensor* const* right, size_t count, const double* values);

} // extern "C"
