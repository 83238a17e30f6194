#include "modelled.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

namespace memlab {
namespace {

GpuDescription description_{};
thread_local const char* operator_ = "";

void release(void* address) {
  memlab_device_release(address);
}

struct ModelledAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kModelled, 0);
    // As CUDA's allocator: no bytes, no block.
    if (bytes == 0) {
      return {nullptr, nullptr, &release, device};
    }
    // A node's name has to be demangled each time.
    const auto node = memlab_device_is_recorded() ? torch::autograd::get_current_node() : nullptr;
    const std::string node_name = node ? node->name() : std::string();
    void* address = memlab_device_allocate(bytes, operator_, node_name.c_str());
    if (address == nullptr) {
      if (memlab_device_host_refused()) {
        TORCH_CHECK_WITH(Error, false, memlab_device_refusal());
      }
      TORCH_CHECK_WITH(OutOfMemoryError, false, memlab_device_refusal());
    }
    return {address, address, &release, device};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    if (description_.compute) {
      default_copy_data(dest, src, count);
    }
  }
};

ModelledAllocator allocator_;

// One device and one stream, on which everything has happened already: events are always past. As with CUDA, backward runs
// on the device's own thread.
struct ModelledGuard final : c10::impl::DeviceGuardImplInterface {
  ModelledGuard() = default;
  c10::DeviceType type() const override {
    return kModelled;
  }
  c10::Device exchangeDevice(c10::Device) const override {
    return getDevice();
  }
  c10::Device getDevice() const override {
    return {kModelled, 0};
  }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, getDevice());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, ModelledGuard)

struct ModelledHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
};

} // namespace

const GpuDescription& gpu() {
  return description_;
}

void install(const GpuDescription& description) {
  description_ = description;
  static ModelledHooks hooks;
  c10::register_privateuse1_backend("modelled_gpu");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kModelled, &allocator_);
  register_recipes();
  register_autocast();
}

bool has_values(const at::Tensor& tensor) {
  // c10/core/AllocatorConfig.h: kSmallSize, the largest block of a small segment.
  constexpr size_t kSmallBlock = 1 << 20;
  return description_.compute || tensor.device().type() != kModelled ||
      (at::isIntegralType(tensor.scalar_type(), true) && tensor.storage().nbytes() <= kSmallBlock);
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  return at::from_blob(
      tensor.mutable_data_ptr(),
      tensor.sizes(),
      tensor.strides(),
      at::TensorOptions().dtype(tensor.scalar_type()).device(c10::kCPU));
}

OperatorScope::OperatorScope(const char* name) : previous_(operator_) {
  operator_ = name;
}

OperatorScope::~OperatorScope() {
  operator_ = previous_;
}

void uses(First what) {
  memlab_device_first(static_cast<int32_t>(what));
}

c10::DataPtr scratch(int64_t bytes) {
  return allocator_.allocate(static_cast<size_t>(bytes));
}

} // namespace memlab
