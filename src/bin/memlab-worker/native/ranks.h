// Ranks of one run: the store where they meet, the group in which they compute, and the reducer that averages gradients.
//
// Conventions are those of shim.h. Handles live until the process ends: a group joins its threads when it is destroyed, which
// could wait for a rank that is gone.
#pragma once

#include "shim.h"

namespace c10d {
class ProcessGroup;
class Reducer;
class Store;
} // namespace c10d

extern "C" {

// ---- the store ----

// A file that all ranks can reach, and that belongs to this run.
int32_t memlab_store_file(const char* path, int32_t world_size, c10d::Store** store);
// A server, which this process hosts or another does.
int32_t memlab_store_tcp(const char* host, uint16_t port, int32_t world_size, int32_t hosts, c10d::Store** store);
int32_t memlab_store_set(c10d::Store* store, const char* key, const char* data, size_t size);
// `write` is called once where the key is set, and not otherwise.
int32_t memlab_store_get(
    c10d::Store* store, const char* key, void (*write)(void* context, const char* data, size_t size), void* context);
// Adds to a counter that begins at 0, and gives the sum.
int32_t memlab_store_add(c10d::Store* store, const char* key, int64_t amount, int64_t* sum);

// ---- the group ----

// Waits at most `timeout_ms` for every rank. On the modelled GPU (`device` as in shim.h) and on CUDA alike the collectives are
// gloo's.
int32_t memlab_group_gloo(
    c10d::Store* store, int32_t rank, int32_t world_size, int32_t device, int64_t timeout_ms, c10d::ProcessGroup** group);

// The same over NCCL, with one GPU per rank. NCCL connects at the first collective.
int32_t memlab_group_nccl(
    c10d::Store* store, int32_t rank, int32_t world_size, int64_t timeout_ms, c10d::ProcessGroup** group);
// The normal end of a group, once every rank is done with it.
int32_t memlab_group_shutdown(c10d::ProcessGroup* group);

// ---- the reducer, as torch.nn.parallel.DistributedDataParallel uses it ----

// Verifies that all ranks have the same parameters, and gives everyone those of rank zero.
int32_t memlab_reducer_open(
    c10d::ProcessGroup* group, at::Tensor* const* parameters, size_t count, c10d::Reducer** reducer);
int32_t memlab_reducer_before_forward(c10d::Reducer* reducer);
int32_t memlab_reducer_before_backward(c10d::Reducer* reducer);

} // extern "C"
