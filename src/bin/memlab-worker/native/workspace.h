// Sizes, in bytes, of what CUDA kernels allocate besides their results. Pure functions of shapes and of the GPU.
//
// Each names its source in PyTorch 2.11 (aten/src/ATen), and is held to reports recorded on an H200 (tests/worker_h200.rs).
#pragma once

#include <cstdint>

namespace memlab::workspace {

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// A reduction over one leading dimension of a contiguous fp32 tensor: `inputs` values for each of `outputs` results.
struct Reduction {
  int64_t buffer_bytes; // partial results of blocks that share an output; 0 where one block is enough
  int64_t semaphore_bytes;
};
Reduction reduction(int64_t outputs, int64_t inputs, int64_t multiprocessors, int64_t max_threads_per_multiprocessor);

// Memory-efficient attention, backward, per (batch, head): the gradient of the query in fp32, and block counters.
int64_t efficient_attention_backward(
    int64_t batch_heads, int64_t sequence, int64_t head_size, int64_t element_size);

// cuDNN attention.
constexpr int64_t cudnn_attention_forward = 256;
int64_t cudnn_attention_backward(int64_t batch_heads, int64_t sequence, int64_t head_size);

// Flash attention, forward: into how many parts the keys are split to fill the GPU (1: no temporary).
int64_t flash_attention_splits(int64_t batch_heads, int64_t sequence, int64_t head_size, int64_t multiprocessors);

// cub::DeviceRadixSort::SortPairs of `n` 64-bit keys with 64-bit values.
int64_t radix_sort_pairs(int64_t n);

// The scan behind thrust::unique_by_key and its kin over `n` items.
int64_t unique_by_key(int64_t n);

} // namespace memlab::workspace
