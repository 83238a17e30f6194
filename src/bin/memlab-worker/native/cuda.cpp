// CUDA without its headers: the libraries are opened at run time, and only when a run asks for CUDA.

#include "guarded.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace memlab {
namespace {

void* library_ = nullptr;

// A function of the CUDA libraries by its symbol.
template <typename Function>
Function* symbol(const char* name) {
  void* address = dlsym(library_ != nullptr ? library_ : RTLD_DEFAULT, name);
  TORCH_CHECK(address != nullptr, "the CUDA libraries have no ", name);
  return reinterpret_cast<Function*>(address);
}

c10::DeviceAllocator& allocator() {
  auto* allocator = c10::getDeviceAllocator(c10::kCUDA);
  TORCH_CHECK(allocator != nullptr, "the CUDA allocator is not there");
  return *allocator;
}

constexpr size_t kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// cudaDeviceAttr values, part of CUDA's stable interface.
constexpr int kMultiprocessorCount = 16, kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;

// All memory of the first visible GPU, in bytes, as the allocator's fraction counts it; asked of the driver, before
// libtorch.
uint64_t total_memory() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  TORCH_CHECK(driver != nullptr, "there is no CUDA driver on this machine");
  const auto initialise = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto total = reinterpret_cast<int (*)(size_t*, int)>(dlsym(driver, "cuDeviceTotalMem_v2"));
  TORCH_CHECK(initialise != nullptr && get != nullptr && total != nullptr, "the CUDA driver is not complete");
  int device = 0;
  size_t bytes = 0;
  TORCH_CHECK(initialise(0) == 0 && get(&device, 0) == 0 && total(&bytes, device) == 0, "the CUDA driver shows no GPU");
  return bytes;
}

// The allocator reads its settings when it is loaded. A run's memory depends on its spec alone, so settings of the
// environment do not reach it. The fraction is the smallest whose product with the total is the capacity, cut to bytes.
void set_allocator_settings(uint64_t capacity) {
  unsetenv("PYTORCH_ALLOC_CONF");
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  if (capacity == 0) {
    return;
  }
  const auto total = static_cast<double>(total_memory());
  double fraction = static_cast<double>(capacity) / total;
  if (fraction >= 1.0) {
    return;
  }
  while (static_cast<uint64_t>(fraction * total) < capacity) {
    fraction = std::nextafter(fraction, 1.0);
  }
  char text[80];
  std::snprintf(text, sizeof(text), "per_process_memory_fraction:%.17g", fraction);
  setenv("PYTORCH_CUDA_ALLOC_CONF", text, 1);
}

// The driver reads which GPUs are visible when it is initialised. Ranks with a GPU each see their own alone, so that it is the
// first everywhere; a launcher that shows each rank one GPU has done so already.
void show_only(int32_t own) {
  std::vector<std::string> visible;
  if (const char* text = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream names(text);
    for (std::string name; std::getline(names, name, ',');) {
      visible.push_back(name);
    }
    TORCH_CHECK(!visible.empty(), "CUDA_VISIBLE_DEVICES hides every GPU");
  }
  const auto index = static_cast<size_t>(own);
  const std::string name = visible.empty() ? std::to_string(own) : visible[index % visible.size()];
  setenv("CUDA_VISIBLE_DEVICES", name.c_str(), 1);
}

int attribute(int device, int attribute) {
  int value = 0;
  const int error = symbol<int(int*, int, int)>("cudaDeviceGetAttribute")(&value, attribute, device);
  TORCH_CHECK(error == 0, "cudaDeviceGetAttribute failed with error ", error);
  return value;
}

} // namespace
} // namespace memlab

using memlab::guarded;

extern "C" {

int32_t memlab_cuda_open(uint64_t capacity, int32_t own) {
  return guarded([&] {
    if (own >= 0) {
      memlab::show_only(own);
    }
    memlab::set_allocator_settings(capacity);
    memlab::library_ = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_GLOBAL);
    TORCH_CHECK(memlab::library_ != nullptr, dlerror());
    TORCH_CHECK(at::hasCUDA(), "no usable GPU: the driver is missing, too old, or shows no device");
    // The allocator has no device before this.
    at::globalContext().lazyInitDevice(c10::kCUDA);
  });
}

int64_t memlab_cuda_out_of_memory_events(void) {
  int64_t events = 0;
  if (memlab::library_ != nullptr) {
    guarded([&] {
      const auto device = c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice();
      events = memlab::allocator().getDeviceStats(device.index()).num_ooms;
    });
  }
  return events;
}

int32_t memlab_cuda_runtime_version(void) {
  int version = 0;
  if (memlab::library_ != nullptr) {
    guarded([&] { memlab::symbol<int(int*)>("cudaRuntimeGetVersion")(&version); });
  }
  return version;
}

int32_t memlab_cuda_device_count(int32_t* count) {
  return guarded([&] { *count = c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount(); });
}

int32_t memlab_cuda_device(int32_t index, MemlabCudaDevice* device) {
  return guarded([&] {
    *device = {};
    int handle = 0;
    // The driver is in the process once the CUDA libraries are initialised.
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    TORCH_CHECK(driver != nullptr, "the CUDA driver is not loaded");
    const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
    const auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
    TORCH_CHECK(get != nullptr && name != nullptr, "the CUDA driver has no cuDeviceGetName");
    TORCH_CHECK(get(&handle, index) == 0 && name(device->name, sizeof(device->name), handle) == 0, "no GPU ", index);
    device->memory_bytes = memlab::allocator().getMemoryInfo(static_cast<c10::DeviceIndex>(index)).second;
    device->compute_capability[0] = memlab::attribute(index, memlab::kComputeCapabilityMajor);
    device->compute_capability[1] = memlab::attribute(index, memlab::kComputeCapabilityMinor);
    device->multiprocessors = memlab::attribute(index, memlab::kMultiprocessorCount);
    TORCH_CHECK(
        memlab::symbol<int(int*)>("cudaDriverGetVersion")(&device->driver_version) == 0, "cudaDriverGetVersion failed");
  });
}

int32_t memlab_cuda_counters(MemlabCounters* counters) {
  return guarded([&] {
    const auto* guard = c10::impl::getDeviceGuardImpl(c10::kCUDA);
    const auto device = guard->getDevice();
    guard->synchronizeDevice(device.index());
    const auto stats = memlab::allocator().getDeviceStats(device.index());
    const auto [free, total] = memlab::allocator().getMemoryInfo(device.index());
    *counters = {
        static_cast<uint64_t>(stats.allocated_bytes[memlab::kAll].current),
        static_cast<uint64_t>(stats.reserved_bytes[memlab::kAll].current),
        static_cast<uint64_t>(stats.allocated_bytes[memlab::kAll].peak),
        free,
        total,
        stats.num_ooms,
    };
  });
}

int32_t memlab_cuda_reset_peak(void) {
  return guarded([] {
    const auto device = c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice();
    memlab::allocator().resetPeakStats(device.index());
  });
}

int32_t memlab_cuda_record(uint64_t max_entries) {
  return guarded([&] {
    using Record = void(
        std::optional<std::string>, std::optional<std::string>, const std::string&, size_t, bool, bool, bool,
        const std::vector<std::string>&);
    // torch::cuda::_record_memory_history, in libtorch_cuda and therefore reached by its symbol.
    memlab::symbol<Record>(
        "_ZN5torch4cuda22_record_memory_historyESt8optionalINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEES8_"
        "RKS7_mbbbRKSt6vectorIS7_SaIS7_EE")("all", "all", "all", max_entries, true, false, false, {});
  });
}

int32_t memlab_cuda_snapshot(void (*write)(void*, const char*, size_t), void* context) {
  return guarded([&] {
    const std::string pickled =
        memlab::symbol<std::string()>("_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev")();
    write(context, pickled.data(), pickled.size());
  });
}

} // extern "C"
