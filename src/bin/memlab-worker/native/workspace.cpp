#include "workspace.h"

#include <algorithm>

namespace memlab::workspace {
namespace {

int64_t last_power_of_two(int64_t n) {
  int64_t power = 1;
  while (power * 2 <= n) {
    power *= 2;
  }
  return power;
}

} // namespace

// native/cuda/Reduce.cuh: setReduceConfig and ReduceConfig::global_memory_size, for vt0 = 4 and at most 512 threads.
Reduction reduction(int64_t outputs, int64_t inputs, int64_t multiprocessors, int64_t max_threads_per_multiprocessor) {
  constexpr int64_t kElement = 4, kMaxThreads = 512, kWarp = 32, kMinValues = 16, kMaxValues = 256;
  int64_t vector = 4;
  while (outputs % vector != 0) {
    vector /= 2;
  }
  const int64_t threads_limit = kMaxThreads / vector;
  const auto power = [&](int64_t n) { return n < threads_limit ? last_power_of_two(std::max<int64_t>(n, 1)) : threads_limit; };
  const int64_t width_limit = power(outputs / vector), height_limit = power(inputs);
  int64_t width = std::min(width_limit, kWarp);
  const int64_t height = std::min(height_limit, threads_limit / width);
  width = std::min(width_limit, threads_limit / height);

  int64_t outputs_per_block = width, values = inputs;
  const bool across_warps = values >= std::min<int64_t>(height * 16, 256);
  if (across_warps) {
    values = ceil_div(inputs, height);
  } else {
    outputs_per_block *= height;
  }
  const int64_t grid = ceil_div(outputs / vector, outputs_per_block);
  const int64_t target = multiprocessors * (max_threads_per_multiprocessor / (width * height));
  if (!across_warps || values < kMaxValues || grid > target) {
    return {0, 0};
  }
  const int64_t blocks =
      std::max(std::min(ceil_div(target, grid), ceil_div(values, kMinValues)), ceil_div(values, kMaxValues));
  if (blocks <= 1) {
    return {0, 0};
  }
  return {kElement * outputs * blocks, 4 * grid};
}

// native/transformers/cuda/mem_eff_attention/kernel_backward.h: workspace_size, for the tiles of the kernels that sm_80 and
// later select: up to 64 wide, up to 128 wide, and wider, where half precision accumulates key and value in fp32 too.
int64_t efficient_attention_backward(
    int64_t batch_heads, int64_t sequence, int64_t head_size, int64_t element_size) {
  const int64_t head_tile = head_size <= 64 ? 64 : 128;
  const int64_t query_tile = head_tile == 128 && head_size <= 128 && element_size == 2 ? 128 : 64;
  const int64_t rows = round_up(sequence, head_tile), columns = round_up(head_size, head_tile);
  const int64_t accumulators = head_size > 128 && element_size == 2 ? 3 : 1;
  return batch_heads * (accumulators * 4 * rows * columns + 16 * (rows / query_tile) * (columns / head_tile));
}

// Recorded: the gradient of the query in fp32, the row sums in fp32, and 256 bytes.
int64_t cudnn_attention_backward(int64_t batch_heads, int64_t sequence, int64_t head_size) {
  return 4 * batch_heads * sequence * (head_size + 1) + 256;
}

// native/transformers/cuda/flash_attn/flash_api.cpp: set_params_splitkv and num_splits_heuristic.
int64_t flash_attention_splits(int64_t batch_heads, int64_t sequence, int64_t head_size, int64_t multiprocessors) {
  const int64_t key_tile = head_size <= 64 ? 256 : head_size <= 128 ? 128 : 64;
  const int64_t key_tiles = ceil_div(sequence, key_tile);
  const int64_t work = batch_heads * ceil_div(sequence, 64);
  const int64_t processors = 2 * multiprocessors;
  if (static_cast<float>(work) >= 0.8f * static_cast<float>(processors)) {
    return 1;
  }
  const int64_t limit = std::min({int64_t{128}, processors, key_tiles});
  const auto eligible = [&](int64_t splits) {
    return splits == 1 || ceil_div(key_tiles, splits) != ceil_div(key_tiles, splits - 1);
  };
  const auto efficiency = [&](int64_t splits) {
    const float waves = static_cast<float>(work * splits) / static_cast<float>(processors);
    return waves / static_cast<float>(static_cast<int64_t>(waves) + (waves > static_cast<int64_t>(waves) ? 1 : 0));
  };
  float best = 0;
  for (int64_t splits = 1; splits <= limit; ++splits) {
    if (eligible(splits)) {
      best = std::max(best, efficiency(splits));
    }
  }
  for (int64_t splits = 1; splits <= limit; ++splits) {
    if (eligible(splits) && efficiency(splits) >= 0.85f * best) {
      return splits;
    }
  }
  return 1;
}

// Recorded, and as CUB's onesweep lays it out: two alternate buffers, one digit histogram per pass and its counters, one
// look-back word per digit and tile of 4,608 items, and alignment.
int64_t radix_sort_pairs(int64_t n) {
  return 2 * round_up(n * 8, 256) + 16640 + 1024 * ceil_div(n, 4608) + 255;
}

// Recorded up to 300,000 items: tile states of 16 bytes, 32 of them spare, in steps of 256 bytes.
int64_t unique_by_key(int64_t n) {
  return std::max<int64_t>(round_up(16 * (ceil_div(n, 3328) + 32), 256), 1024) + 255;
}

} // namespace memlab::workspace
