// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul_onednn.hpp"

#include <cstddef>
#include <type_traits>

#include "core/error.hpp"
#include "core/memory_ledger.hpp"

#ifdef ESPALIER_HAVE_ONEDNN
#include <fmt/format.h>

#include <array>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#endif

namespace espalier::impl {

#ifdef ESPALIER_HAVE_ONEDNN
namespace {

// Rows of the result that make up for the packing of b, by whether it is transposed, which takes longer.
constexpr std::array<Index, 2> min_rows_to_pack = {1024, 4096};
constexpr std::size_t max_cached_gemms = 1024;

struct OnednnShape {
  Index rows, cols, inner;
  Transpose ta, tb;
  Index a_stride, b_stride, c_stride;
  bool fp32_result;
  float beta;
  bool has_bias;
  bool packed;                                           // b lies as oneDNN likes it best
  auto operator<=>(const OnednnShape&) const = default;  // NOLINT(modernize-use-nullptr): sees a pointer in it
};

dnnl::memory::desc matrix_desc(Index rows, Index cols, Transpose t, Index stride, bool fp32 = false) {
  using Dims = dnnl::memory::dims;
  return {Dims{rows, cols}, fp32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16,
          t == Transpose::yes ? Dims{1, stride} : Dims{stride, 1}};
}

dnnl::matmul::primitive_desc onednn_matmul_desc(const OnednnShape& shape, const dnnl::engine& engine) {
  const auto any =
      dnnl::memory::desc({shape.inner, shape.cols}, dnnl::memory::data_type::bf16, dnnl::memory::format_tag::any);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(shape.beta);
    attributes.set_post_ops(sum);
  }
  const auto a = matrix_desc(shape.rows, shape.inner, shape.ta, shape.a_stride);
  const auto b = shape.packed ? any : matrix_desc(shape.inner, shape.cols, shape.tb, shape.b_stride);
  const auto bias = shape.has_bias ? matrix_desc(1, shape.cols, Transpose::no, shape.cols) : dnnl::memory::desc();
  const auto c = matrix_desc(shape.rows, shape.cols, Transpose::no, shape.c_stride, shape.fp32_result);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, bias, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, bias, c), attributes, engine};
#endif
}

// A matmul of one shape: oneDNN has made a kernel for it.
class OnednnMatmul {
 public:
  OnednnMatmul(const OnednnShape& shape, const dnnl::engine& engine)
      : OnednnMatmul(shape, onednn_matmul_desc(shape, engine), engine) {}

  std::size_t scratchpad_bytes() const { return scratchpad_.get_desc().get_size(); }
  std::size_t packed_bytes() const { return b_.get_desc().get_size(); }

  void pack(const dnnl::stream& stream, const void* b, void* packed) {
    plain_.set_data_handle(const_cast<void*>(b));
    b_.set_data_handle(packed);
    packing_->execute(stream, plain_, b_);
  }

  void multiply(dnnl::stream& stream, void* c, const void* a, const void* b, const void* bias, void* scratchpad) {
    a_.set_data_handle(const_cast<void*>(a));
    b_.set_data_handle(const_cast<void*>(b));
    if (bias != nullptr)
      bias_.set_data_handle(const_cast<void*>(bias));
    c_.set_data_handle(c);
    scratchpad_.set_data_handle(scratchpad);
    primitive_.execute(stream, arguments_);
    stream.wait();
  }

 private:
  OnednnMatmul(const OnednnShape& shape, const dnnl::matmul::primitive_desc& desc, const dnnl::engine& engine)
      : primitive_(desc),
        a_(desc.src_desc(), engine, nullptr),
        b_(desc.weights_desc(), engine, nullptr),
        bias_(desc.bias_desc(), engine, nullptr),
        c_(desc.dst_desc(), engine, nullptr),
        scratchpad_(desc.scratchpad_desc(), engine, nullptr),
        arguments_{{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}, {DNNL_ARG_SCRATCHPAD, scratchpad_}} {
    if (shape.has_bias)
      arguments_.try_emplace(DNNL_ARG_BIAS, bias_);
    if (shape.packed) {
      plain_ = dnnl::memory(matrix_desc(shape.inner, shape.cols, shape.tb, shape.b_stride), engine, nullptr);
      packing_.emplace(plain_, b_);
    }
  }

  dnnl::matmul primitive_;
  dnnl::memory a_, b_, bias_, c_, scratchpad_;  // where the operands lie is set for each call
  dnnl::memory plain_;
  std::optional<dnnl::reorder> packing_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// The matmuls of one thread, or of all of them together, made at their first use; and their scratch memory.
class OnednnCache {
 public:
  dnnl::stream& stream() { return stream_; }

  OnednnMatmul& operator[](const OnednnShape& shape) {
    const auto found = gemms_.find(shape);
    if (found != gemms_.end())
      return found->second;
    if (gemms_.size() >= max_cached_gemms)
      gemms_.clear();
    return gemms_.try_emplace(shape, shape, engine_).first->second;
  }

  // Lives on; counted as scratch of a library, whose size no prediction knows.
  void* scratchpad(std::size_t bytes) {
    if (bytes > scratchpad_bytes_) {
      scratchpad_.reset();  // before the new one is made
      const std::size_t before = std::exchange(scratchpad_bytes_, 0);
      scratchpad_.reset(new (std::align_val_t{64}) std::byte[bytes]);
      MemoryLedger::instance().record_library_scratch(bytes - before);
      scratchpad_bytes_ = bytes;
    }
    return scratchpad_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<OnednnShape, OnednnMatmul> gemms_;
  std::unique_ptr<std::byte[], Free> scratchpad_;
  std::size_t scratchpad_bytes_ = 0;
};

// One for the process, as Kokkos lives once; given back before it ends.
Tensor<std::byte, 1>& packed_memory() {
  static Tensor<std::byte, 1> memory;
  static const bool hooked = [] {
    Kokkos::push_finalize_hook([] { memory = {}; });
    return true;
  }();
  static_cast<void>(hooked);
  return memory;
}

template <class F>
void translate_errors(const OnednnShape& shape, const F& multiply) {
  try {
    multiply();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory)
      throw std::bad_alloc();
    throw Error(ExitCode::defect,
                {.what = "oneDNN refuses a matmul",
                 .where = fmt::format("bf16, ({}, {}) x ({}, {})", shape.rows, shape.inner, shape.inner, shape.cols),
                 .got = error.what(),
                 .todo = "choose another library: run.matmul=openblas"});
  }
}

template <class Out>
OnednnShape shape_of(const Matrix<Out>& c, Transpose ta, const Matrix<const bfloat16>& a, Transpose tb,
                     const Matrix<const bfloat16>& b, float beta, bool has_bias) {
  return {.rows = c.rows,
          .cols = c.cols,
          .inner = ta == Transpose::no ? a.cols : a.rows,
          .ta = ta,
          .tb = tb,
          .a_stride = a.stride,
          .b_stride = b.stride,
          .c_stride = c.stride,
          .fp32_result = std::is_same_v<Out, float>,
          .beta = beta,
          .has_bias = has_bias,
          .packed = false};
}

template <class Out>
void multiply(Matrix<Out> c, Transpose ta, Matrix<const bfloat16> a, Transpose tb, Matrix<const bfloat16> b, float beta,
              const bfloat16* bias) {
  static OnednnCache cache;
  Tensor<std::byte, 1>& memory = packed_memory();
  if (memory.extent(0) == 0)  // whether or not this matmul is packed: its size is predicted
    memory = allocate<std::byte>(Category::workspace, "onednn_packed", onednn_packed_bytes);
  OnednnShape shape = shape_of(c, ta, a, tb, b, beta, bias != nullptr);
  const auto b_bytes = static_cast<std::size_t>(shape.inner * shape.cols) * sizeof(bfloat16);
  shape.packed = b_bytes <= onednn_packed_bytes && shape.rows >= min_rows_to_pack[static_cast<std::size_t>(tb)];
  translate_errors(shape, [&] {
    OnednnMatmul* gemm = &cache[shape];
    if (shape.packed && gemm->packed_bytes() > onednn_packed_bytes) {  // with what fills up its blocks
      shape.packed = false;
      gemm = &cache[shape];
    }
    const void* right = b.data;
    if (shape.packed) {
      gemm->pack(cache.stream(), b.data, memory.data());
      right = memory.data();
    }
    gemm->multiply(cache.stream(), c.data, a.data, right, bias, cache.scratchpad(gemm->scratchpad_bytes()));
  });
}

}  // namespace

bool onednn_multiplies_bf16() {
  static const bool has_units = [] {
    const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);  // a set of bits; AMX has them, too
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
  }();
  return exec_is_host && has_units;
}

void matmul_onednn(Matrix<bfloat16> c, Transpose ta, Matrix<const bfloat16> a, Transpose tb, Matrix<const bfloat16> b,
                   float beta, const bfloat16* bias) {
  multiply(c, ta, a, tb, b, beta, bias);
}

void matmul_onednn(Matrix<float> c, Transpose ta, Matrix<const bfloat16> a, Transpose tb, Matrix<const bfloat16> b,
                   float beta, const bfloat16* bias) {
  multiply(c, ta, a, tb, b, beta, bias);
}

void tile_matmul_onednn(Matrix<float> c, Transpose ta, Matrix<const bfloat16> a, Transpose tb, Matrix<const bfloat16> b,
                        float beta) {
  thread_local OnednnCache cache;
  const OnednnShape shape = shape_of(c, ta, a, tb, b, beta, false);
  translate_errors(shape, [&] {
    OnednnMatmul& gemm = cache[shape];
    gemm.multiply(cache.stream(), c.data, a.data, b.data, nullptr, cache.scratchpad(gemm.scratchpad_bytes()));
  });
}

void release_onednn_workspace() { packed_memory() = {}; }

#else

bool onednn_multiplies_bf16() { return false; }

void matmul_onednn(Matrix<bfloat16>, Transpose, Matrix<const bfloat16>, Transpose, Matrix<const bfloat16>, float,
                   const bfloat16*) {
  ESPALIER_ASSERT(false, "this build has no oneDNN");
}

void matmul_onednn(Matrix<float>, Transpose, Matrix<const bfloat16>, Transpose, Matrix<const bfloat16>, float,
                   const bfloat16*) {
  ESPALIER_ASSERT(false, "this build has no oneDNN");
}

void tile_matmul_onednn(Matrix<float>, Transpose, Matrix<const bfloat16>, Transpose, Matrix<const bfloat16>, float) {
  ESPALIER_ASSERT(false, "this build has no oneDNN");
}

void release_onednn_workspace() {}

#endif

}  // namespace espalier::impl
