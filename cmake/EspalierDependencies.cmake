# What Espalier is built on. Required: Kokkos, MPI, fmt; with the command also HDF5, toml++, CLI11,
# nlohmann-json, xxHash, PCRE2, utf8proc, simdjson, zlib, zstd, Chart.js, and SentencePiece, if it is found. GEMM libraries: whichever of Kokkos Kernels and, on CPUs, a CBLAS and oneDNN is found. With CUDA:
# the CUDA toolkit; cuBLASLt, NCCL and cuDNN, if they are found.

if(NOT TARGET Kokkos::kokkos)
  find_package(Kokkos 3.4 REQUIRED CONFIG)
endif()
if(ESPALIER_ENABLE_CUDA AND Kokkos_VERSION VERSION_LESS 4.6)
  message(FATAL_ERROR "ESPALIER_ENABLE_CUDA=ON needs Kokkos 4.6 or newer; ${Kokkos_DIR} has ${Kokkos_VERSION}. "
                      "ci/cuda builds one.")
endif()
if(ESPALIER_ENABLE_CUDA AND ESPALIER_ENABLE_GPU_KERNELS_ON_HOST)
  message(FATAL_ERROR "ESPALIER_ENABLE_GPU_KERNELS_ON_HOST=ON is for hosts; this build is for GPUs "
                      "(ESPALIER_ENABLE_CUDA=ON). Leave one of them out.")
endif()
if(ESPALIER_ENABLE_CUDA AND NOT Kokkos_DEVICES MATCHES "CUDA")
  message(FATAL_ERROR "ESPALIER_ENABLE_CUDA=ON needs a Kokkos built with CUDA; ${Kokkos_DIR} has ${Kokkos_DEVICES}. "
                      "ci/cuda builds one.")
endif()
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# ---- GEMM libraries ----
set(ESPALIER_GEMM_LIBRARIES "tiled")
find_package(KokkosKernels CONFIG QUIET)
if(KokkosKernels_FOUND)
  list(APPEND ESPALIER_GEMM_LIBRARIES kokkos_kernels)
endif()
if(ESPALIER_ENABLE_CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(TARGET CUDA::cublasLt)
    list(APPEND ESPALIER_GEMM_LIBRARIES cublaslt)
  endif()
else()  # those that read host memory
  # Debian's OpenBLAS variants share one soname, so the OpenMP one is named by its path (and its rpath, see core/).
  find_library(ESPALIER_CBLAS_LIBRARY NAMES openblas
               PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
  find_library(ESPALIER_CBLAS_LIBRARY NAMES openblas)
  find_path(ESPALIER_CBLAS_INCLUDE NAMES cblas.h
            PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
  find_path(ESPALIER_CBLAS_INCLUDE NAMES cblas.h PATH_SUFFIXES openblas)
  if(ESPALIER_CBLAS_LIBRARY AND ESPALIER_CBLAS_INCLUDE)
    list(APPEND ESPALIER_GEMM_LIBRARIES openblas)
  endif()
  # Debian's dnnl-config.cmake asks for OpenCL, which its CPU engine does not need: the library is found by itself.
  find_library(ESPALIER_DNNL_LIBRARY NAMES dnnl)
  find_path(ESPALIER_DNNL_INCLUDE NAMES dnnl.h)
  if(ESPALIER_DNNL_LIBRARY AND ESPALIER_DNNL_INCLUDE)
    list(APPEND ESPALIER_GEMM_LIBRARIES onednn)
  endif()
endif()

# ---- NCCL: optional, MPI does its work where it is not found ----
if(ESPALIER_ENABLE_CUDA)
  find_library(ESPALIER_NCCL_LIBRARY NAMES nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(ESPALIER_NCCL_INCLUDE NAMES nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT ESPALIER_NCCL_INCLUDE)
    unset(ESPALIER_NCCL_LIBRARY CACHE)
  endif()
endif()

# ---- cuDNN: optional, our own kernels do its work where it or its headers for C++ (cudnn-frontend) are not found ----
if(ESPALIER_ENABLE_CUDA)
  find_library(ESPALIER_CUDNN_LIBRARY NAMES cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES ../lib)
  find_path(ESPALIER_CUDNN_INCLUDE NAMES cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(ESPALIER_CUDNN_FRONTEND_INCLUDE NAMES cudnn_frontend.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT ESPALIER_CUDNN_INCLUDE OR NOT ESPALIER_CUDNN_FRONTEND_INCLUDE OR NOT TARGET CUDA::nvrtc)
    unset(ESPALIER_CUDNN_LIBRARY CACHE)
  endif()
endif()

if(ESPALIER_ENABLE_APP)
  find_package(HDF5 REQUIRED COMPONENTS C)
  find_package(CLI11 REQUIRED)
  find_package(tomlplusplus REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_library(ESPALIER_XXHASH_LIBRARY NAMES xxhash REQUIRED)
  # Tokenizers: regular expressions with \p{White_Space} (10.40), normal forms, and models of SentencePiece.
  find_library(ESPALIER_PCRE2_LIBRARY NAMES pcre2-8 REQUIRED)
  find_path(ESPALIER_PCRE2_INCLUDE NAMES pcre2.h REQUIRED)
  find_library(ESPALIER_UTF8PROC_LIBRARY NAMES utf8proc REQUIRED)
  find_path(ESPALIER_UTF8PROC_INCLUDE NAMES utf8proc.h REQUIRED)
  # Text to pack: JSON lines, gzip and zstd.
  find_library(ESPALIER_SIMDJSON_LIBRARY NAMES simdjson REQUIRED)
  find_path(ESPALIER_SIMDJSON_INCLUDE NAMES simdjson.h REQUIRED)
  find_library(ESPALIER_ZLIB_LIBRARY NAMES z REQUIRED)
  find_path(ESPALIER_ZLIB_INCLUDE NAMES zlib.h REQUIRED)
  find_library(ESPALIER_ZSTD_LIBRARY NAMES zstd REQUIRED)
  find_path(ESPALIER_ZSTD_INCLUDE NAMES zstd.h REQUIRED)
  find_library(ESPALIER_SENTENCEPIECE_LIBRARY NAMES sentencepiece)
  find_path(ESPALIER_SENTENCEPIECE_INCLUDE NAMES sentencepiece_processor.h)
  if(NOT ESPALIER_SENTENCEPIECE_INCLUDE)
    unset(ESPALIER_SENTENCEPIECE_LIBRARY CACHE)
  endif()
  # It draws the page of a run, and is embedded into it.
  find_file(ESPALIER_CHART_JS NAMES chart.min.js chart.umd.js PATHS /usr PATH_SUFFIXES
            share/javascript/chart.js share/nodejs/chart.js/dist lib/node_modules/chart.js/dist)
  if(NOT ESPALIER_CHART_JS)
    message(FATAL_ERROR "Chart.js 3 or newer is missing. Install Debian's libjs-chart.js, or name the file chart.min.js (3) or "
                        "chart.umd.js (4) of its release: -DESPALIER_CHART_JS=FILE.")
  endif()
endif()
