#include "ranks.h"
#include "guarded.h"
#include "modelled.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <dlfcn.h>

#include <cstdlib>
#include <limits>

namespace memlab {
namespace {

using c10d::Backend;
using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;
using c10d::Work;

constexpr size_t kMiB = size_t{1} << 20;

// A collective of the host that stands for one of the modelled GPU: done when that is done, with the modelled GPU's tensors as
// its result.
class ModelledWork final : public Work {
 public:
  ModelledWork(c10::intrusive_ptr<Work> work, c10d::OpType type, std::vector<at::Tensor> results)
      : Work(-1, type), work_(std::move(work)), results_(std::move(results)) {}

  bool isCompleted() override {
    return work_->isCompleted();
  }
  bool isSuccess() const override {
    return work_->isSuccess();
  }
  std::exception_ptr exception() const override {
    return work_->exception();
  }
  std::vector<at::Tensor> result() override {
    return results_;
  }
  void synchronize() override {
    work_->synchronize();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    return work_->wait(timeout);
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return work_->getFuture()->then(
        [results = results_](c10::ivalue::Future& done) {
          if (done.hasError()) {
            std::rethrow_exception(done.exception_ptr());
          }
          return c10::IValue(results);
        },
        c10::ListType::create(c10::TensorType::get()));
  }

 private:
  c10::intrusive_ptr<Work> work_;
  std::vector<at::Tensor> results_;
};

// gloo for tensors of the modelled GPU: it sees the host's view of them. What has no values is not sent, but the ranks wait for
// one another just the same.
class ModelledBackend final : public Backend {
 public:
  explicit ModelledBackend(c10::intrusive_ptr<ProcessGroupGloo> gloo)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override {
    return gloo_->getBackendName();
  }

  c10::intrusive_ptr<Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return collective(c10d::OpType::BROADCAST, tensors, [&](std::vector<at::Tensor>& views) {
      return gloo_->broadcast(views, options);
    });
  }

  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return collective(c10d::OpType::ALLREDUCE, tensors, [&](std::vector<at::Tensor>& views) {
      return gloo_->allreduce(views, options);
    });
  }

  c10::intrusive_ptr<Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override {
    std::vector<at::Tensor> results, input_views = views_of(inputs);
    std::vector<std::vector<at::Tensor>> output_views;
    for (const auto& list : outputs) {
      results.insert(results.end(), list.begin(), list.end());
      output_views.push_back(views_of(list));
      // ProcessGroupGloo.cpp: AsyncAllgatherWork::getOutputTensors flattens each list when it is enqueued.
      const OperatorScope scope("gloo::allgather");
      scratch(static_cast<int64_t>(list.size()) * list.front().numel() * list.front().element_size());
    }
    auto work = gloo_->allgather(output_views, input_views, options);
    return c10::make_intrusive<ModelledWork>(std::move(work), c10d::OpType::ALLGATHER, std::move(results));
  }

 private:
  static std::vector<at::Tensor> views_of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> views;
    views.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(has_values(tensor), "a collective over values that an allocation-only run does not have");
      views.push_back(on_host(tensor));
    }
    return views;
  }

  template <typename Start>
  c10::intrusive_ptr<Work> collective(c10d::OpType type, std::vector<at::Tensor>& tensors, Start start) {
    c10::intrusive_ptr<Work> work;
    if (std::all_of(tensors.begin(), tensors.end(), has_values)) {
      auto views = views_of(tensors);
      work = start(views);
    } else {
      work = gloo_->barrier();
    }
    return c10::make_intrusive<ModelledWork>(std::move(work), type, tensors);
  }

  c10::intrusive_ptr<ProcessGroupGloo> gloo_;
};

std::chrono::milliseconds milliseconds(int64_t count) {
  return std::chrono::milliseconds(count);
}

// ProcessGroupNCCL.hpp includes headers of NCCL, cuBLAS, cuSPARSE, cuSOLVER and nvcc, which neither a libtorch nor all that a
// torch wheel requires brings. Like everything of CUDA it is reached by its symbols instead: two constructors, whose names spell
// out their arguments, in memory that is never freed. Of the objects nothing is used but what their base classes declare, which
// come first in them. Compiled with those headers, PyTorch 2.11's objects have 1,112 and 248 bytes, aligned to 8; the worker
// runs with no other release (report.rs).
template <typename Base>
struct Foreign {
  static constexpr size_t kRoom = 8192;

  // `construct` gets the memory; the result is never destroyed.
  template <typename Construct>
  static c10::intrusive_ptr<Base> make(Construct construct) {
    void* memory = ::operator new(kRoom);
    construct(memory);
    // A new object of this kind has no reference yet.
    auto pointer = c10::intrusive_ptr<Base>::unsafe_steal_from_new(static_cast<Base*>(memory));
    c10::raw::intrusive_ptr::incref(pointer.get());
    return pointer;
  }
};

template <typename Function>
Function* cuda_symbol(const char* name) {
  void* address = dlsym(RTLD_DEFAULT, name);
  TORCH_CHECK(address != nullptr, "this libtorch has no NCCL: ", name, " is missing");
  return reinterpret_cast<Function*>(address);
}

c10::intrusive_ptr<Backend> nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size, int64_t timeout_ms) {
  auto* construct_options =
      cuda_symbol<void(void*, bool)>("_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb");
  auto* construct = cuda_symbol<void(
      void*, c10::intrusive_ptr<c10d::Store>, int, int, c10::intrusive_ptr<Backend::Options>)>(
      "_ZN4c10d16ProcessGroupNCCLC1EN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_EEEEiiNS2_"
      "INS0_7OptionsENS5_IS8_EEEE");
  auto options = Foreign<Backend::Options>::make([&](void* memory) { construct_options(memory, false); });
  options->timeout = milliseconds(timeout_ms);
  return Foreign<Backend>::make([&](void* memory) { construct(memory, store, rank, size, options); });
}

template <typename T>
c10::intrusive_ptr<T> borrow(T* pointer) {
  return c10::intrusive_ptr<T>::reclaim_copy(pointer);
}

} // namespace
} // namespace memlab

using memlab::guarded;

extern "C" {

int32_t memlab_store_file(const char* path, int32_t world_size, c10d::Store** store) {
  return guarded([&] { *store = c10::make_intrusive<c10d::FileStore>(path, world_size).release(); });
}

int32_t memlab_store_tcp(const char* host, uint16_t port, int32_t world_size, int32_t hosts, c10d::Store** store) {
  return guarded([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = hosts != 0;
    options.numWorkers = world_size;
    // Waiting for the others is the group's business, which says who is missing.
    options.waitWorkers = false;
    auto tcp = c10::make_intrusive<c10d::TCPStore>(host, options);
    // A launcher's store is shared with whatever else it started.
    *store = c10::make_intrusive<c10d::PrefixStore>("memlab", std::move(tcp)).release();
  });
}

int32_t memlab_store_set(c10d::Store* store, const char* key, const char* data, size_t size) {
  return guarded([&] { store->set(key, std::vector<uint8_t>(data, data + size)); });
}

int32_t memlab_store_get(c10d::Store* store, const char* key, void (*write)(void*, const char*, size_t), void* context) {
  return guarded([&] {
    if (store->check({key})) {
      const std::vector<uint8_t> data = store->get(key);
      write(context, reinterpret_cast<const char*>(data.data()), data.size());
    }
  });
}

int32_t memlab_store_add(c10d::Store* store, const char* key, int64_t amount, int64_t* sum) {
  return guarded([&] { *sum = store->add(key, amount); });
}

int32_t memlab_group_gloo(
    c10d::Store* store,
    int32_t rank,
    int32_t world_size,
    int32_t device,
    int64_t timeout_ms,
    c10d::ProcessGroup** group) {
  return guarded([&] {
    using namespace memlab;
    auto options = ProcessGroupGloo::Options::create(milliseconds(timeout_ms));
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    options->devices.push_back(
        interface != nullptr && *interface != '\0' ? ProcessGroupGloo::createDeviceForInterface(interface)
                                                   : ProcessGroupGloo::createDefaultDevice());
    const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("gloo", borrow(store));
    prefixed->setTimeout(milliseconds(timeout_ms));
    auto gloo = c10::make_intrusive<ProcessGroupGloo>(prefixed, rank, world_size, options);
    auto result = c10::make_intrusive<ProcessGroup>(prefixed, rank, world_size);
    result->setBackend(c10::kCPU, ProcessGroup::BackendType::GLOO, gloo);
    if (device == 0) {
      result->setBackend(c10::kCUDA, ProcessGroup::BackendType::GLOO, gloo);
    } else {
      result->setBackend(
          kModelled, ProcessGroup::BackendType::CUSTOM, c10::make_intrusive<ModelledBackend>(std::move(gloo)));
    }
    result->setDefaultBackend(ProcessGroup::BackendType::GLOO);
    *group = result.release();
  });
}

int32_t memlab_group_nccl(
    c10d::Store* store, int32_t rank, int32_t world_size, int64_t timeout_ms, c10d::ProcessGroup** group) {
  return guarded([&] {
    using namespace memlab;
    // Otherwise NCCL's watchdog ends the process when another rank is gone, and with it the evidence.
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
    const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("nccl", borrow(store));
    prefixed->setTimeout(milliseconds(timeout_ms));
    auto result = c10::make_intrusive<ProcessGroup>(prefixed, rank, world_size);
    result->setBackend(c10::kCUDA, ProcessGroup::BackendType::NCCL, nccl(prefixed, rank, world_size, timeout_ms));
    result->setDefaultBackend(ProcessGroup::BackendType::NCCL);
    *group = result.release();
  });
}

int32_t memlab_group_shutdown(c10d::ProcessGroup* group) {
  return guarded([&] { group->shutdown(); });
}

// torch/nn/parallel/distributed.py: DistributedDataParallel.__init__ and _ddp_init_helper, with gradient_as_bucket_view.
int32_t memlab_reducer_open(
    c10d::ProcessGroup* group, at::Tensor* const* parameters, size_t count, c10d::Reducer** reducer) {
  return guarded([&] {
    using memlab::kMiB;
    std::vector<at::Tensor> tensors, values;
    for (size_t i = 0; i < count; ++i) {
      tensors.push_back(*parameters[i]);
      values.push_back(parameters[i]->detach());
    }
    const auto ranks = memlab::borrow(group);
    c10d::verify_params_across_processes(ranks, tensors, std::nullopt);
    c10d::broadcast_coalesced(ranks, values, 250 * kMiB);
    // The first iteration has one bucket for everything; the reducer then makes others in the order of its gradients.
    const std::vector<bool> expect_sparse(count, false);
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
        tensors, {static_cast<size_t>(std::numeric_limits<int64_t>::max())}, expect_sparse));
    std::reverse(buckets.begin(), buckets.end());
    *reducer = new c10d::Reducer(
        std::move(tensors),
        std::move(buckets),
        ranks,
        expect_sparse,
        /*bucket_bytes_cap=*/25 * kMiB,
        /*find_unused_parameters=*/false,
        /*gradient_as_bucket_view=*/true,
        /*param_names=*/{},
        /*first_bucket_bytes_cap=*/kMiB,
        /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false,
        /*bucket_bytes_cap_list=*/{});
  });
}

// DistributedDataParallel._pre_forward and _post_forward.
int32_t memlab_reducer_before_forward(c10d::Reducer* reducer) {
  return guarded([&] {
    reducer->prepare_for_forward();
    reducer->rebuild_buckets();
  });
}

int32_t memlab_reducer_before_backward(c10d::Reducer* reducer) {
  return guarded([&] { reducer->prepare_for_backward({}); });
}

} // extern "C"
