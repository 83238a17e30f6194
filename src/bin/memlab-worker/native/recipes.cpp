// Recipes: for each operator that a workload uses, what its CUDA kernel allocates, keeps and frees, in order.
//
// A recipe allocates its results and temporaries on the modelled GPU exactly as the kernel named beside it does, and then,
// unless the run is allocation-only, has the CPU's kernel compute into the results. What the CPU's kernel needs for itself
// is host memory and does not count. Operators that PyTorch composes of others need no recipe: their parts have one. The
// order and the sizes are held to histories and reports recorded on an H200 (tests/worker_order.rs, tests/worker_h200.rs).
//
// To add an operator: one function and one line in the registration at the end.

#include "modelled.h"
#include "workspace.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

namespace memlab {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::TensorList;

bool compute() {
  return gpu().compute;
}

// The host's view of an operand; operands that are on the host already (wrapped numbers) are their own view.
Tensor host(const Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kModelled ? on_host(tensor) : tensor;
}

std::optional<Tensor> host(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? std::optional<Tensor>(host(*tensor)) : std::nullopt;
}

std::vector<Tensor> host(TensorList tensors) {
  std::vector<Tensor> views;
  views.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    views.push_back(host(tensor));
  }
  return views;
}

Tensor allocate(IntArrayRef sizes, ScalarType type) {
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, c10::GetAllocator(kModelled), keys, type, std::nullopt);
}

Tensor allocate_strided(IntArrayRef sizes, IntArrayRef strides, ScalarType type) {
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(kModelled), keys, type);
}

// ---- factories and views ------------------------------------------------------------------------------------------------

Tensor empty_memory_format(
    IntArrayRef sizes,
    std::optional<ScalarType> type,
    std::optional<c10::Layout>,
    std::optional<c10::Device>,
    std::optional<bool>,
    std::optional<c10::MemoryFormat> format) {
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(
      sizes, c10::GetAllocator(kModelled), keys, c10::dtype_or_default(type), format);
}

Tensor empty_strided(
    IntArrayRef sizes,
    IntArrayRef strides,
    std::optional<ScalarType> type,
    std::optional<c10::Layout>,
    std::optional<c10::Device>,
    std::optional<bool>) {
  return allocate_strided(sizes, strides, c10::dtype_or_default(type));
}

// native/cuda/Copy.cu: on one device a copy is one kernel, whatever the strides and types.
Tensor& copy_(Tensor& self, const Tensor& source, bool) {
  if (has_values(self) && has_values(source)) {
    host(self).copy_(host(source));
  }
  return self;
}

Tensor& zero_(Tensor& self) {
  if (has_values(self)) {
    host(self).zero_();
  }
  return self;
}

Tensor& fill_scalar_(Tensor& self, const Scalar& value) {
  if (has_values(self)) {
    host(self).fill_(value);
  }
  return self;
}

Scalar local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(has_values(self), "an allocation-only run has no values to read");
  return host(self).item();
}

// native/cuda/Shape.cu: concatenation needs only its result.
Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  const OperatorScope scope("aten::cat");
  const auto parts = tensors.materialize();
  TORCH_CHECK(!parts.empty(), "cat of no tensors");
  // The kinds of concatenation that PyTorch allows besides (of several types, of empty vectors) occur in no workload.
  const Tensor& first = parts.front().get();
  dim = at::maybe_wrap_dim(dim, first.dim());
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[dim] = 0;
  std::vector<Tensor> views;
  for (const Tensor& part : parts) {
    TORCH_CHECK(part.scalar_type() == first.scalar_type() && part.dim() == first.dim(), "cat of unlike tensors");
    sizes[dim] += part.size(dim);
    views.push_back(host(part));
  }
  Tensor result = allocate(sizes, first.scalar_type());
  if (compute()) {
    Tensor view = host(result);
    at::cat_out(view, views, dim);
  }
  return result;
}

// ---- element-wise -------------------------------------------------------------------------------------------------------

// native/TensorIterator.cpp allocates the result: broadcast shape, promoted type, the operands' layout.
template <typename Out>
Tensor binary(const Tensor& self, const Tensor& other, Out out) {
  Tensor result;
  result = at::TensorIterator::binary_op(result, self, other).output();
  if (compute()) {
    Tensor view = host(result);
    out(view, host(self), host(other));
  }
  return result;
}

template <typename Out>
Tensor& binary_into(const Tensor& self, const Tensor& other, Tensor& result, Out out) {
  if (compute()) {
    Tensor view = host(result);
    out(view, host(self), host(other));
  }
  return result;
}

Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  const OperatorScope scope("aten::add");
  return binary(self, other, [&](Tensor& r, const Tensor& a, const Tensor& b) { at::add_out(r, a, b, alpha); });
}
Tensor& add_into(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& result) {
  return binary_into(self, other, result, [&](Tensor& r, const Tensor& a, const Tensor& b) { at::add_out(r, a, b, alpha); });
}
Tensor& add_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  return add_into(self, other, alpha, self);
}

Tensor mul(const Tensor& self, const Tensor& other) {
  const OperatorScope scope("aten::mul");
  return binary(self, other, [](Tensor& r, const Tensor& a, const Tensor& b) { at::mul_out(r, a, b); });
}
Tensor& mul_into(const Tensor& self, const Tensor& other, Tensor& result) {
  return binary_into(self, other, result, [](Tensor& r, const Tensor& a, const Tensor& b) { at::mul_out(r, a, b); });
}
Tensor& mul_(Tensor& self, const Tensor& other) {
  return mul_into(self, other, self);
}

Tensor div(const Tensor& self, const Tensor& other) {
  const OperatorScope scope("aten::div");
  return binary(self, other, [](Tensor& r, const Tensor& a, const Tensor& b) { at::div_out(r, a, b); });
}
Tensor& div_into(const Tensor& self, const Tensor& other, Tensor& result) {
  return binary_into(self, other, result, [](Tensor& r, const Tensor& a, const Tensor& b) { at::div_out(r, a, b); });
}
Tensor& div_(Tensor& self, const Tensor& other) {
  return div_into(self, other, self);
}

// native/cuda/ActivationGeluKernel.cu
Tensor gelu(const Tensor& self, std::string_view approximate) {
  const OperatorScope scope("aten::gelu");
  Tensor result;
  result = at::TensorIterator::unary_op(result, self).output();
  if (compute()) {
    Tensor view = host(result);
    at::gelu_out(view, host(self), approximate);
  }
  return result;
}

Tensor gelu_backward(const Tensor& grad, const Tensor& self, std::string_view approximate) {
  const OperatorScope scope("aten::gelu_backward");
  return binary(grad, self, [&](Tensor& r, const Tensor& g, const Tensor& x) {
    at::gelu_backward_out(r, g, x, approximate);
  });
}

// ---- reductions ---------------------------------------------------------------------------------------------------------

// native/ReduceOps.cpp: the result; native/cuda/Reduce.cuh: buffer and semaphores where blocks share an output.
Tensor sum_dim(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> type) {
  const OperatorScope scope("aten::sum");
  const auto mask = at::dim_list_to_bitset(dims.value_or(IntArrayRef{}), self.dim());
  const bool all = !dims.has_value() || dims->empty();
  std::vector<int64_t> sizes;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    if (!all && !mask[dim]) {
      sizes.push_back(self.size(dim));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  const ScalarType result_type =
      type.value_or(at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type());
  Tensor result = allocate(sizes, result_type);
  if (result.numel() > 0 && result.numel() < self.numel()) {
    const auto& model = gpu();
    const auto temporary = workspace::reduction(
        result.numel(), self.numel() / result.numel(), model.multiprocessors, model.max_threads_per_multiprocessor);
    if (temporary.buffer_bytes > 0) {
      const auto buffer = scratch(temporary.buffer_bytes);
      const auto semaphores = scratch(temporary.semaphore_bytes);
    }
  }
  if (compute()) {
    Tensor view = host(result);
    at::sum_out(view, host(self), dims, keepdim, type);
  }
  return result;
}

// ---- matrix products ----------------------------------------------------------------------------------------------------

// cuda/CublasHandlePool.cpp: the workspace of this thread's BLAS handle, taken at its first product and kept.
void take_blas_workspace() {
  thread_local bool taken = false;
  if (taken) {
    return;
  }
  taken = true;
  uses(First::BlasHandle);
  if (gpu().blas_workspace_bytes > 0) {
    const OperatorScope scope("cublas::workspace");
    scratch(gpu().blas_workspace_bytes).release_context();
  }
  uses(First::Product);
}

// native/cuda/Blas.cpp: operands that are neither row- nor column-major are copied for the product.
c10::DataPtr blas_operand(const Tensor& matrix) {
  const bool columns = matrix.stride(0) == 1 && matrix.stride(1) >= std::max<int64_t>(1, matrix.size(0));
  const bool rows = matrix.stride(1) == 1 && matrix.stride(0) >= std::max<int64_t>(1, matrix.size(1));
  return columns || rows ? c10::DataPtr() : scratch(matrix.numel() * matrix.element_size());
}

Tensor mm(const Tensor& self, const Tensor& other) {
  const OperatorScope scope("aten::mm");
  Tensor result = allocate({self.size(0), other.size(1)}, self.scalar_type());
  if (result.numel() > 0 && self.size(1) > 0) {
    take_blas_workspace();
    const auto left = blas_operand(self);
    const auto right = blas_operand(other);
  }
  if (compute()) {
    Tensor view = host(result);
    at::mm_out(view, host(self), host(other));
  }
  return result;
}

// native/cuda/Blas.cpp: bmm_out_cuda_impl. Operands of the math fallback are row- or column-major, so none is copied.
Tensor bmm(const Tensor& self, const Tensor& other) {
  const OperatorScope scope("aten::bmm");
  Tensor result = allocate({self.size(0), self.size(1), other.size(2)}, self.scalar_type());
  if (result.numel() > 0 && self.size(2) > 0) {
    take_blas_workspace();
  }
  if (compute()) {
    Tensor view = host(result);
    at::bmm_out(view, host(self), host(other));
  }
  return result;
}

// ---- normalisation, loss ------------------------------------------------------------------------------------------------

// native/cuda/layer_norm_kernel.cu: layer_norm_cuda. Statistics are fp32.
std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& input,
    IntArrayRef normalized,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    double epsilon) {
  const OperatorScope scope("aten::native_layer_norm");
  const Tensor source = input.contiguous();
  Tensor result = allocate(source.sizes(), source.scalar_type());
  std::vector<int64_t> rows(input.sizes().begin(), input.sizes().end() - static_cast<int64_t>(normalized.size()));
  rows.resize(input.dim(), 1);
  const ScalarType statistics = at::toOpMathType(input.scalar_type());
  Tensor mean = allocate(rows, statistics);
  Tensor reciprocal = allocate(rows, statistics);
  if (compute()) {
    auto [r, m, s] = at::native_layer_norm(host(source), normalized, host(weight), host(bias), epsilon);
    host(result).copy_(r);
    host(mean).copy_(m);
    host(reciprocal).copy_(s);
  }
  return {result, mean, reciprocal};
}

// native/cuda/layer_norm_kernel.cu: layer_norm_backward_cuda, LaunchGammaBetaBackwardCUDAKernel. With many rows and few
// columns the parameters' gradients are partial sums over blocks of rows, reduced by sum(0).
std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(
    const Tensor& grad,
    const Tensor& input,
    IntArrayRef normalized,
    const Tensor& mean,
    const Tensor& reciprocal,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    std::array<bool, 3> wanted) {
  const OperatorScope scope("aten::native_layer_norm_backward");
  const Tensor source = input.contiguous();
  Tensor grad_input = wanted[0] ? at::empty_like(source) : Tensor();
  Tensor grad_weight = wanted[1] ? at::empty_like(*weight) : Tensor();
  Tensor grad_bias = wanted[2] ? at::empty_like(*bias) : Tensor();
  const Tensor incoming = grad.contiguous();
  int64_t columns = 1;
  for (const int64_t size : normalized) {
    columns *= size;
  }
  const int64_t rows = columns == 0 ? 0 : source.numel() / columns;
  if (rows > 64 * 1024 && columns / 32 < gpu().multiprocessors / 2) {
    const int64_t blocks = std::min(
        workspace::ceil_div(rows, 32), 32 * 1024 / workspace::ceil_div(columns, 32));
    const Tensor weight_blocks = wanted[1] ? allocate({blocks, columns}, weight->scalar_type()) : Tensor();
    const Tensor bias_blocks = wanted[2] ? allocate({blocks, columns}, bias->scalar_type()) : Tensor();
    if (wanted[1]) {
      grad_weight = weight_blocks.sum(0);
    }
    if (wanted[2]) {
      grad_bias = bias_blocks.sum(0);
    }
  }
  if (compute()) {
    auto [i, w, b] = at::native_layer_norm_backward(
        host(incoming), host(source), normalized, host(mean), host(reciprocal), host(weight), host(bias), wanted);
    if (wanted[0]) {
      host(grad_input).copy_(i);
    }
    if (wanted[1]) {
      host(grad_weight).copy_(w);
    }
    if (wanted[2]) {
      host(grad_bias).copy_(b);
    }
  }
  return {grad_input, grad_weight, grad_bias};
}

// native/cuda/SoftMax.cu
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  const OperatorScope scope("aten::_softmax");
  const Tensor source = self.contiguous();
  Tensor result = allocate(self.sizes(), half_to_float ? at::kFloat : self.scalar_type());
  if (compute()) {
    host(result).copy_(at::_softmax(host(source).to(result.scalar_type()), dim, false));
  }
  return result;
}

// native/cuda/SoftMax.cu: structured_softmax_backward_cuda_out multiplies gradient and output first.
Tensor softmax_backward_data(const Tensor& grad, const Tensor& output, int64_t dim, ScalarType input_type) {
  const OperatorScope scope("aten::_softmax_backward_data");
  Tensor result = allocate(grad.sizes(), input_type);
  const auto product = scratch(grad.numel() * grad.element_size());
  if (compute()) {
    host(result).copy_(at::_softmax_backward_data(host(grad), host(output), dim, output.scalar_type()));
  }
  return result;
}

// What _safe_softmax looks for: rows in which everything is masked.
Tensor isneginf(const Tensor& self) {
  const OperatorScope scope("aten::isneginf");
  Tensor result = allocate(self.sizes(), at::kBool);
  if (compute()) {
    Tensor view = host(result);
    at::isneginf_out(view, host(self));
  }
  return result;
}

Tensor all_dim(const Tensor& self, int64_t dim, bool keepdim) {
  const OperatorScope scope("aten::all");
  std::vector<int64_t> sizes = self.sizes().vec();
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (keepdim) {
    sizes[dim] = 1;
  } else {
    sizes.erase(sizes.begin() + dim);
  }
  Tensor result = allocate(sizes, at::kBool);
  if (compute()) {
    Tensor view = host(result);
    at::all_out(view, host(self), dim, keepdim);
  }
  return result;
}

Tensor& where_into(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& result) {
  if (compute()) {
    Tensor view = host(result);
    at::where_out(view, host(condition), host(self), host(other));
  }
  return result;
}

// native/cuda/SoftMax.cu
Tensor log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  const OperatorScope scope("aten::_log_softmax");
  const Tensor source = self.contiguous();
  Tensor result = allocate(self.sizes(), half_to_float ? at::kFloat : self.scalar_type());
  if (compute()) {
    // The CPU's kernel has no half_to_float: convert first, as the result is the same.
    host(result).copy_(at::_log_softmax(host(source).to(result.scalar_type()), dim, false));
  }
  return result;
}

Tensor log_softmax_backward_data(const Tensor& grad, const Tensor& output, int64_t dim, ScalarType input_type) {
  const OperatorScope scope("aten::_log_softmax_backward_data");
  const Tensor incoming = grad.contiguous();
  const Tensor source = output.contiguous();
  Tensor result = allocate(grad.sizes(), input_type);
  if (compute()) {
    host(result).copy_(at::_log_softmax_backward_data(host(incoming), host(source), dim, output.scalar_type()));
  }
  return result;
}

// native/cuda/Loss.cu: the loss, then the total weight.
std::tuple<Tensor, Tensor> nll_loss_forward(
    const Tensor& self,
    const Tensor& target,
    const std::optional<Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index) {
  const OperatorScope scope("aten::nll_loss_forward");
  const bool per_sample = reduction == at::Reduction::None && self.dim() == 2;
  Tensor loss = per_sample ? allocate({self.size(0)}, self.scalar_type()) : allocate({}, self.scalar_type());
  Tensor total_weight = allocate({}, self.scalar_type());
  if (compute()) {
    Tensor loss_view = host(loss), total_view = host(total_weight);
    at::nll_loss_forward_out(
        loss_view, total_view, host(self), host(target), host(weight), reduction, ignore_index);
  }
  return {loss, total_weight};
}

Tensor nll_loss_backward(
    const Tensor& grad,
    const Tensor& self,
    const Tensor& target,
    const std::optional<Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index,
    const Tensor& total_weight) {
  const OperatorScope scope("aten::nll_loss_backward");
  Tensor result = allocate(self.sizes(), self.scalar_type());
  if (compute()) {
    Tensor view = host(result).zero_();
    at::nll_loss_backward_out(
        view, host(grad), host(self), host(target), host(weight), reduction, ignore_index, host(total_weight));
  }
  return result;
}

// ---- embedding ----------------------------------------------------------------------------------------------------------

// native/cuda/Indexing.cu: index_select_cuda; the forward of an embedding.
Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  const OperatorScope scope("aten::index_select");
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[c10::maybe_wrap_dim(dim, self.dim())] = index.numel();
  Tensor result = allocate(sizes, self.scalar_type());
  uses(First::Embedding);
  if (compute()) {
    Tensor view = host(result);
    at::index_select_out(view, host(self), dim, host(index));
  }
  return result;
}

// native/cuda/Embedding.cu: embedding_dense_backward_cuda; above 3,072 indices the gradient is summed over sorted indices,
// native/cuda/EmbeddingBackwardKernel.cu, which splits long runs of one index into parts of 10 rows.
Tensor embedding_dense_backward(
    const Tensor& grad, const Tensor& indices, int64_t rows, int64_t padding, bool scale_by_frequency) {
  const OperatorScope scope("aten::embedding_dense_backward");
  const Tensor incoming = grad.contiguous();
  const Tensor index = indices.contiguous();
  const int64_t n = index.numel(), width = grad.size(-1);
  const auto longs = [](int64_t count) { return scratch(8 * count); };
  Tensor result;
  if (n <= 3072 && !scale_by_frequency) {
    result = allocate({rows, width}, grad.scalar_type()).zero_();
  } else {
    const auto sorted = longs(n), original = longs(n);
    {
      const auto range = longs(n);
      const auto sort = scratch(workspace::radix_sort_pairs(n));
    }
    result = allocate({rows, width}, grad.scalar_type()).zero_();
    const int64_t segments = std::min(n, rows), parts = n / 10 + segments;
    const auto segment_offsets = longs(n), segment_count = longs(1);
    {
      const auto positions = longs(n);
      const auto unique = scratch(workspace::unique_by_key(n));
    }
    const auto parts_per_segment = longs(segments), part_offsets_per_segment = longs(segments);
    {
      const auto scan = scratch(workspace::unique_by_key(segments));
    }
    const auto part_count = longs(1), part_offsets = longs(parts);
    const auto part_gradients = scratch(4 * parts * width);
  }
  if (compute()) {
    host(result).copy_(
        at::embedding_dense_backward(host(incoming), host(index), rows, padding, scale_by_frequency));
  }
  return result;
}

// ---- attention ----------------------------------------------------------------------------------------------------------
// Shapes: query, key and value are (batch, heads, sequence, head size).

// The CPU's fused kernel, and where it keeps what backward needs: log-sum-exp is (batch, sequence, heads) there and the
// first `sequence` of each row of the modelled GPU's.
void attend(
    const Tensor& query, const Tensor& key, const Tensor& value, std::optional<double> scale, const Tensor& output,
    const Tensor& log_sum_exp) {
  if (!compute()) {
    return;
  }
  auto [o, l] = at::_scaled_dot_product_flash_attention_for_cpu(
      host(query), host(key), host(value), 0.0, false, std::nullopt, scale);
  host(output).copy_(o);
  const int64_t batch = query.size(0), heads = query.size(1), sequence = query.size(2);
  host(log_sum_exp).view({batch, heads, -1}).narrow(2, 0, sequence).copy_(
      l.size(1) == heads ? l : l.transpose(1, 2));
}

void attend_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& output,
    const Tensor& log_sum_exp, std::optional<double> scale, const Tensor& grad_query, const Tensor& grad_key,
    const Tensor& grad_value) {
  if (!compute()) {
    return;
  }
  const int64_t batch = query.size(0), heads = query.size(1), sequence = query.size(2);
  // The CPU's backward reads the log-sum-exp in the layout that its forward returns: heads innermost.
  const Tensor l = host(log_sum_exp).view({batch, heads, -1}).narrow(2, 0, sequence).transpose(1, 2).contiguous().transpose(1, 2);
  auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      host(grad), host(query), host(key), host(value), host(output), l, 0.0, false, std::nullopt, scale);
  host(grad_query).copy_(q);
  host(grad_key).copy_(k);
  host(grad_value).copy_(v);
}

// native/transformers/cuda/attention.cu: _efficient_attention_forward. The log-sum-exp's rows are padded to 32.
std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>&,
    bool compute_log_sum_exp,
    double,
    bool,
    std::optional<double> scale) {
  const OperatorScope scope("aten::_scaled_dot_product_efficient_attention");
  const int64_t batch = query.size(0), heads = query.size(1), sequence = query.size(2), size = value.size(3);
  Tensor output = allocate({batch, sequence, heads, size}, query.scalar_type());
  Tensor log_sum_exp =
      allocate({batch, heads, compute_log_sum_exp ? workspace::round_up(sequence, 32) : 0}, at::kFloat);
  // The kernel accumulates in fp32 beside a half-precision result when the head does not fit its registers.
  if (size > 128 && query.element_size() == 2) {
    const auto accumulator = scratch(4 * output.numel());
  }
  Tensor transposed = output.transpose(1, 2);
  attend(query, key, value, scale, transposed, log_sum_exp);
  return {transposed, log_sum_exp, at::empty({}, at::kLong), at::empty({}, at::kLong)};
}

// native/transformers/cuda/attention_backward.cu: _efficient_attention_backward.
std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention_backward(
    const Tensor& grad,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor&,
    const Tensor& output,
    const Tensor& log_sum_exp,
    const Tensor&,
    const Tensor&,
    double,
    std::array<bool, 4>,
    bool,
    std::optional<double> scale) {
  const OperatorScope scope("aten::_scaled_dot_product_efficient_attention_backward");
  if (!grad.defined()) {
    return {};
  }
  const int64_t batch = query.size(0), heads = query.size(1), sequence = query.size(2), size = query.size(3);
  const Tensor incoming = grad.transpose(1, 2).contiguous();
  const auto like = [&] { return allocate({batch, sequence, heads, size}, query.scalar_type()); };
  Tensor grad_query = like(), grad_key = like(), grad_value = like();
  {
    // The row sums of grad * output: by the kernel in half precision, by two operators and a copy in fp32.
    Tensor delta;
    if (query.element_size() == 4) {
      const auto product = scratch(4 * output.numel());
      delta = allocate({batch, sequence, heads}, at::kFloat).transpose(1, 2);
      delta = delta.contiguous();
    } else {
      delta = allocate({batch, heads, sequence}, at::kFloat);
    }
    const auto accumulator =
        scratch(workspace::efficient_attention_backward(batch * heads, sequence, size, query.element_size()));
    // The row sums go before the accumulator.
    delta.reset();
  }
  grad_query = grad_query.transpose(1, 2);
  grad_key = grad_key.transpose(1, 2);
  grad_value = grad_value.transpose(1, 2);
  attend_backward(
      incoming.transpose(1, 2), query, key, value, output, log_sum_exp, scale, grad_query, grad_key, grad_value);
  return {grad_query, grad_key, grad_value, Tensor()};
}

using FusedAttention =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

// native/cudnn/MHA.cpp: run_cudnn_SDP_fprop: seed and offset, output in the query's layout, log-sum-exp, plan workspace.
FusedAttention cudnn_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>&,
    bool,
    double,
    bool,
    bool,
    std::optional<double> scale) {
  const OperatorScope scope("aten::_scaled_dot_product_cudnn_attention");
  Tensor seed = allocate({}, at::kLong), offset = allocate({}, at::kLong);
  Tensor output = at::empty_like(query);
  Tensor log_sum_exp = allocate({query.size(0), query.size(1), query.size(2), 1}, at::kFloat);
  {
    const auto plan = scratch(workspace::cudnn_attention_forward);
  }
  uses(First::CudnnAttention);
  attend(query, key, value, scale, output, log_sum_exp);
  return {output, log_sum_exp, Tensor(), Tensor(), query.sym_size(2), key.sym_size(2), seed, offset, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> cudnn_attention_backward(
    const Tensor& grad,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& output,
    const Tensor& log_sum_exp,
    const Tensor&,
    const Tensor&,
    const Tensor&,
    const Tensor&,
    const Tensor&,
    c10::SymInt,
    c10::SymInt,
    double,
    bool,
    std::optional<double> scale) {
  const OperatorScope scope("aten::_scaled_dot_product_cudnn_attention_backward");
  Tensor grad_query = at::empty_like(query), grad_key = at::empty_like(key), grad_value = at::empty_like(value);
  {
    const auto plan =
        scratch(workspace::cudnn_attention_backward(query.size(0) * query.size(1), query.size(2), query.size(3)));
  }
  uses(First::CudnnAttentionBackward);
  attend_backward(grad, query, key, value, output, log_sum_exp, scale, grad_query, grad_key, grad_value);
  return {grad_query, grad_key, grad_value};
}

// native/transformers/cuda/flash_attn/flash_api.cpp: mha_fwd. The keys are split over blocks where few blocks would run.
FusedAttention flash_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double,
    bool,
    bool,
    std::optional<double> scale) {
  const OperatorScope scope("aten::_scaled_dot_product_flash_attention");
  const int64_t batch = query.size(0), heads = query.size(1), sequence = query.size(2), size = query.size(3);
  Tensor output = at::empty_like(query.transpose(1, 2)).transpose(1, 2);
  Tensor log_sum_exp = allocate({batch, heads, sequence}, at::kFloat);
  const int64_t splits = workspace::flash_attention_splits(batch * heads, sequence, size, gpu().multiprocessors);
  Tensor state, unused;
  {
    c10::DataPtr partial_log_sum_exp, partial_output;
    if (splits > 1) {
      const int64_t rows = 4 * splits * batch * heads * sequence;
      partial_log_sum_exp = scratch(rows);
      partial_output = scratch(rows * workspace::round_up(size, 32));
    }
    state = allocate({2}, at::kUInt64);
    unused = allocate({}, at::kUInt64);
    partial_log_sum_exp.clear();
    partial_output.clear();
  }
  attend(query, key, value, scale, output, log_sum_exp);
  return {output, log_sum_exp, Tensor(), Tensor(), query.sym_size(2), key.sym_size(2), state, unused, Tensor()};
}

// native/transformers/cuda/flash_attn/flash_api.cpp: mha_bwd.
std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& grad,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& output,
    const Tensor& log_sum_exp,
    const Tensor&,
    const Tensor&,
    c10::SymInt,
    c10::SymInt,
    double,
    bool,
    const Tensor&,
    const Tensor&,
    std::optional<double> scale) {
  const OperatorScope scope("aten::_scaled_dot_product_flash_attention_backward");
  const int64_t batch = query.size(0), heads = query.size(1), sequence = query.size(2), size = query.size(3);
  Tensor incoming = grad.transpose(1, 2).contiguous(), result = output.transpose(1, 2).contiguous();
  const auto like = [](const Tensor& tensor) { return at::empty_like(tensor.transpose(1, 2)).transpose(1, 2); };
  Tensor grad_query = like(query), grad_key = like(key), grad_value = like(value);
  {
    const int64_t rows = batch * heads * workspace::round_up(sequence, 128);
    auto row_sums = scratch(4 * rows);
    auto accumulator = scratch(4 * rows * (size <= 192 ? workspace::round_up(size, 32) : 256));
    accumulator.clear();
    row_sums.clear();
  }
  attend_backward(
      incoming.transpose(1, 2), query, key, value, result.transpose(1, 2), log_sum_exp, scale, grad_query, grad_key,
      grad_value);
  result.reset();
  incoming.reset();
  return {grad_query, grad_key, grad_value};
}

// ---- tensor lists -------------------------------------------------------------------------------------------------------
// native/cuda/ForeachBinaryOp*.cu and kin: multi-tensor kernels without temporaries; results are like their operands.

std::vector<Tensor> foreach_sqrt(TensorList self) {
  const OperatorScope scope("aten::_foreach_sqrt");
  std::vector<Tensor> results;
  results.reserve(self.size());
  for (const Tensor& tensor : self) {
    results.push_back(at::empty_like(tensor));
    if (compute()) {
      Tensor view = host(results.back());
      at::sqrt_out(view, host(tensor));
    }
  }
  return results;
}

void foreach_add_list_(TensorList self, TensorList other, const Scalar& alpha) {
  if (compute()) {
    at::_foreach_add_(host(self), host(other), alpha);
  }
}

void foreach_add_scalar_(TensorList self, const Scalar& value) {
  if (compute()) {
    at::_foreach_add_(host(self), value);
  }
}

void foreach_mul_scalar_(TensorList self, const Scalar& value) {
  if (compute()) {
    at::_foreach_mul_(host(self), value);
  }
}

void foreach_div_scalar_list_(TensorList self, at::ArrayRef<Scalar> values) {
  if (compute()) {
    at::_foreach_div_(host(self), values);
  }
}

void foreach_lerp_scalar_(TensorList self, TensorList end, const Scalar& weight) {
  if (compute()) {
    at::_foreach_lerp_(host(self), host(end), weight);
  }
}

void foreach_addcmul_scalar_(TensorList self, TensorList left, TensorList right, const Scalar& value) {
  if (compute()) {
    at::_foreach_addcmul_(host(self), host(left), host(right), value);
  }
}

void foreach_addcdiv_scalar_list_(
    TensorList self, TensorList left, TensorList right, at::ArrayRef<Scalar> values) {
  if (compute()) {
    at::_foreach_addcdiv_(host(self), host(left), host(right), values);
  }
}

// ---- operators without a recipe -----------------------------------------------------------------------------------------

// Computed on the host so that the run can go on, with results of the right size on the modelled GPU; named in the report,
// because what its CUDA kernel would allocate besides is not known. An allocation-only run has no values to compute with.
void without_recipe(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  memlab_device_unknown_operator(op.schema().operator_name().name.c_str());
  TORCH_CHECK(
      compute(),
      "the operator ",
      op.schema().operator_name(),
      " has no recipe, and an allocation-only run cannot compute it; use compute = true");
  at::native::cpu_fallback(op, stack);
}

} // namespace

void register_recipes() {
  static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFromBoxedFunction<&without_recipe>());

  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("copy_", copy_);
  library.impl("zero_", zero_);
  library.impl("fill_.Scalar", fill_scalar_);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("cat", cat);

  library.impl("add.Tensor", add);
  library.impl("add.out", add_into);
  library.impl("add_.Tensor", add_);
  library.impl("mul.Tensor", mul);
  library.impl("mul.out", mul_into);
  library.impl("mul_.Tensor", mul_);
  library.impl("div.Tensor", div);
  library.impl("div.out", div_into);
  library.impl("div_.Tensor", div_);
  library.impl("gelu", gelu);
  library.impl("gelu_backward", gelu_backward);
  library.impl("sum.dim_IntList", sum_dim);
  library.impl("mm", mm);
  library.impl("bmm", bmm);

  library.impl("native_layer_norm", native_layer_norm);
  library.impl("native_layer_norm_backward", native_layer_norm_backward);
  library.impl("_softmax", softmax);
  library.impl("_softmax_backward_data", softmax_backward_data);
  library.impl("isneginf", isneginf);
  library.impl("all.dim", all_dim);
  library.impl("where.self_out", where_into);
  library.impl("_log_softmax", log_softmax);
  library.impl("_log_softmax_backward_data", log_softmax_backward_data);
  library.impl("nll_loss_forward", nll_loss_forward);
  library.impl("nll_loss_backward", nll_loss_backward);
  library.impl("index_select", index_select);
  library.impl("embedding_dense_backward", embedding_dense_backward);

  library.impl("_scaled_dot_product_efficient_attention", efficient_attention);
  library.impl("_scaled_dot_product_efficient_attention_backward", efficient_attention_backward);
  library.impl("_scaled_dot_product_cudnn_attention", cudnn_attention);
  library.impl("_scaled_dot_product_cudnn_attention_backward", cudnn_attention_backward);
  library.impl("_scaled_dot_product_flash_attention", flash_attention);
  library.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);

  library.impl("_foreach_sqrt", foreach_sqrt);
  library.impl("_foreach_add_.List", foreach_add_list_);
  library.impl("_foreach_add_.Scalar", foreach_add_scalar_);
  library.impl("_foreach_mul_.Scalar", foreach_mul_scalar_);
  library.impl("_foreach_div_.ScalarList", foreach_div_scalar_list_);
  library.impl("_foreach_lerp_.Scalar", foreach_lerp_scalar_);
  library.impl("_foreach_addcmul_.Scalar", foreach_addcmul_scalar_);
  library.impl("_foreach_addcdiv_.ScalarList", foreach_addcdiv_scalar_list_);
}

} // namespace memlab
