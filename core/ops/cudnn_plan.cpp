// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cudnn_plan.hpp"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/ops/attention_shape.hpp"
#include "core/ops/cudnn_parts.hpp"

namespace espalier::impl {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

// The names of arrays in both graphs.
enum Uid : std::int64_t { uid_q = 1, uid_k, uid_v, uid_out, uid_log_sum_exp, uid_dout, uid_dq, uid_dk, uid_dv };

[[noreturn]] void fail(const char* call, const std::string& got) {
  throw Error(ExitCode::defect, {.what = "cuDNN fails at attention",
                                 .where = call,
                                 .got = got,
                                 .wanted = "CUDNN_STATUS_SUCCESS",
                                 .todo = "do without cuDNN: run.attention=own; CUDNN_LOGLEVEL_DBG=3 prints more"});
}

std::int64_t group_of(const CudnnShape& shape) { return shape.num_heads / shape.num_kv_heads; }

// Columns of out, Cl, and of qkv, Ql; where K and V begin in a row of qkv.
std::int64_t out_columns(const CudnnShape& shape) { return shape.num_heads * shape.head_size; }
std::int64_t kv_columns(const CudnnShape& shape) { return shape.num_kv_heads * shape.head_size; }
std::int64_t qkv_columns(const CudnnShape& shape) { return out_columns(shape) + 2 * kv_columns(shape); }

CudnnPart whole(const CudnnShape& shape) { return {shape.batch, shape.num_heads}; }

CudnnPart part_of_backward(const CudnnShape& shape) {
  return cudnn_backward_part(shape.batch, shape.num_heads, shape.num_kv_heads, shape.sequence_length);
}

// Describes the heads that `part` has of an array: (B, NH, T, HS), or (B, NKV, T, HS) of K, V and their gradients.
template <class Attributes>
Attributes& lay_out(Attributes& tensor, const CudnnShape& shape, const CudnnPart& part, Uid uid) {
  const bool in_out = uid == uid_out || uid == uid_dout;
  const bool of_queries = in_out || uid == uid_q || uid == uid_dq;
  const std::int64_t stride = in_out ? out_columns(shape) : qkv_columns(shape);
  tensor.set_uid(uid)
      .set_dim({part.sequences, of_queries ? part.heads : part.heads / group_of(shape), shape.sequence_length,
                shape.head_size})
      .set_stride({shape.sequence_length * stride, shape.head_size, stride, 1});
  return tensor;
}

Tensor heads(fe::graph::Graph& graph, const CudnnShape& shape, const CudnnPart& part, Uid uid) {
  Tensor_attributes tensor;
  return graph.tensor(lay_out(tensor, shape, part, uid));
}

// Which keys a query sees: the last W up to itself, or all.
template <class Options>
void mask(Options& options, const CudnnShape& shape) {
  options.set_causal_mask(true);
  if (shape.window > 0)
    options.set_diagonal_band_left_bound(static_cast<int>(shape.window));
}

// (B, NH, T, 1), in fp32; packed, as cuDNN wants it: several sequences have all their heads, a few heads are of one.
template <class Attributes>
Attributes& lay_out_statistics(Attributes& tensor, const CudnnShape& shape, const CudnnPart& part) {
  tensor.set_uid(uid_log_sum_exp)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({part.sequences, part.heads, shape.sequence_length, 1})
      .set_stride({part.heads * shape.sequence_length, shape.sequence_length, 1, 1});
  return tensor;
}

float scale_of(const CudnnShape& shape) { return static_cast<float>(attention_scale(shape.head_size)); }

void describe_forward(fe::graph::Graph& graph, const CudnnShape& shape) {
  const CudnnPart part = whole(shape);
  auto options = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(scale_of(shape));
  mask(options, shape);
  const auto [out, log_sum_exp] = graph.sdpa(heads(graph, shape, part, uid_q), heads(graph, shape, part, uid_k),
                                             heads(graph, shape, part, uid_v), options);
  lay_out(out->set_output(true), shape, part, uid_out);
  lay_out_statistics(log_sum_exp->set_output(true), shape, part);
}

void describe_backward(fe::graph::Graph& graph, const CudnnShape& shape) {
  const CudnnPart part = part_of_backward(shape);
  auto options =
      fe::graph::SDPA_backward_attributes().set_attn_scale(scale_of(shape)).set_deterministic_algorithm(true);
  mask(options, shape);
  Tensor_attributes statistics;
  const Tensor log_sum_exp = graph.tensor(lay_out_statistics(statistics, shape, part));
  const auto [dq, dk, dv] = graph.sdpa_backward(heads(graph, shape, part, uid_q), heads(graph, shape, part, uid_k),
                                                heads(graph, shape, part, uid_v), heads(graph, shape, part, uid_out),
                                                heads(graph, shape, part, uid_dout), log_sum_exp, options);
  lay_out(dq->set_output(true), shape, part, uid_dq);
  lay_out(dk->set_output(true), shape, part, uid_dk);
  lay_out(dv->set_output(true), shape, part, uid_dv);
}

std::shared_ptr<fe::DeviceProperties> device_of(const std::string& description) {
  auto device = std::make_shared<fe::DeviceProperties>();
  if (auto read = device->deserialize({description.begin(), description.end()}); read.is_bad())
    fail("reading the description of a GPU", read.get_message());
  return device;
}

// The first part of cudnn-frontend's messages names the cause; the rest lists every kernel that was tried.
std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

// An element of an array, as 16 bits.
void* at(const void* array, std::int64_t element) {
  return const_cast<std::uint16_t*>(static_cast<const std::uint16_t*>(array)) +
         element;  // cuDNN's interface has no const
}

void run(fe::graph::Graph& graph, cudnnContext* handle, CUstream_st* stream,
         std::unordered_map<std::int64_t, void*> arrays, void* workspace) {
  if (const cudnnStatus_t status = cudnnSetStream(handle, stream); status != CUDNN_STATUS_SUCCESS)
    fail("cudnnSetStream", cudnnGetErrorString(status));
  if (auto done = graph.execute(handle, arrays, workspace); done.is_bad())
    fail("a plan", done.get_message());
}

}  // namespace

CudnnHandle::CudnnHandle() {
  if (const cudnnStatus_t status = cudnnCreate(&handle_); status != CUDNN_STATUS_SUCCESS)
    fail("cudnnCreate", cudnnGetErrorString(status));
}

CudnnHandle::~CudnnHandle() { static_cast<void>(cudnnDestroy(handle_)); }

struct CudnnAttention::Graphs {
  fe::graph::Graph forward, backward;
};

CudnnAttention::CudnnAttention(const CudnnShape& shape, cudnnContext* handle, const std::string& device)
    : shape_(shape), handle_(handle), graphs_(std::make_unique<Graphs>()) {
  const auto plan = [&](fe::graph::Graph& graph, void (*describe)(fe::graph::Graph&, const CudnnShape&)) {
    graph.set_io_data_type(shape.is_bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (!device.empty())
      graph.set_device_properties(device_of(device));
    describe(graph, shape);
    fe::error_t step = graph.validate();
    if (step.is_good())
      step = device.empty() ? graph.build_operation_graph(handle) : graph.build_operation_graph();
    if (step.is_good())
      step = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    if (step.is_good())
      step = graph.check_support();
    if (step.is_good() && device.empty())
      step = graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
    std::int64_t bytes = 0;
    if (step.is_good() && device.empty())
      step = graph.get_workspace_size(bytes);
    workspace_bytes_ = std::max(workspace_bytes_, static_cast<std::size_t>(bytes));
    if (step.is_bad() && refusal_.empty())
      refusal_ = first_line(step.get_message());
    if (workspace_bytes_ > max_cudnn_workspace_bytes && refusal_.empty())
      refusal_ = fmt::format("its workspace of {} MiB is larger than {} MiB", workspace_bytes_ >> 20,
                             max_cudnn_workspace_bytes >> 20);
  };
  plan(graphs_->forward, describe_forward);
  plan(graphs_->backward, describe_backward);
}

CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::forward(CUstream_st* stream, const CudnnArrays& arrays) const {
  const std::int64_t k = out_columns(shape_), v = k + kv_columns(shape_);
  run(graphs_->forward, handle_, stream,
      {{uid_q, at(arrays.qkv, 0)},
       {uid_k, at(arrays.qkv, k)},
       {uid_v, at(arrays.qkv, v)},
       {uid_out, arrays.out},
       {uid_log_sum_exp, arrays.log_sum_exp}},
      arrays.workspace);
}

// Part after part: heads side by side in a row, sequences below each other.
void CudnnAttention::backward(CUstream_st* stream, const CudnnArrays& arrays) const {
  const CudnnPart part = part_of_backward(shape_);
  for (std::int64_t sequence = 0; sequence < shape_.batch; sequence += part.sequences)
    for (std::int64_t head = 0; head < shape_.num_heads; head += part.heads) {
      const std::int64_t row = sequence * shape_.sequence_length;
      const std::int64_t out = row * out_columns(shape_) + head * shape_.head_size;
      const std::int64_t qkv = row * qkv_columns(shape_);
      const std::int64_t q = qkv + head * shape_.head_size;
      const std::int64_t k = qkv + out_columns(shape_) + head / group_of(shape_) * shape_.head_size;
      const std::int64_t v = k + kv_columns(shape_);
      run(graphs_->backward, handle_, stream,
          {{uid_q, at(arrays.qkv, q)},
           {uid_k, at(arrays.qkv, k)},
           {uid_v, at(arrays.qkv, v)},
           {uid_out, at(arrays.out, out)},
           {uid_log_sum_exp, arrays.log_sum_exp + (sequence * shape_.num_heads + head) * shape_.sequence_length},
           {uid_dout, at(arrays.dout, out)},
           {uid_dq, at(arrays.dqkv, q)},
           {uid_dk, at(arrays.dqkv, k)},
           {uid_dv, at(arrays.dqkv, v)}},
          arrays.workspace);
    }
}

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();  // major * 10000 + minor * 100 + patch
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace espalier::impl
