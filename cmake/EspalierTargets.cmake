# What every target of ours shares, and how a module is declared.

# Warnings are ours alone: a project that embeds Espalier never sees them.
add_library(espalier_warnings INTERFACE)
target_compile_options(espalier_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(NOT ESPALIER_ENABLE_CUDA)  # CUDA's headers are full of them
  target_compile_options(espalier_warnings INTERFACE -Wold-style-cast)
endif()
if(CMAKE_UNITY_BUILD)
  # There each file is an included one: no local type of its own would be allowed in what it defines, and its locals would
  # shadow what is local to its neighbours.
  target_compile_options(espalier_warnings INTERFACE -Wno-subobject-linkage "$<$<CXX_COMPILER_ID:GNU>:-Wno-shadow;-Wshadow=local>")
endif()
option(ESPALIER_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)
if(ESPALIER_WARNINGS_AS_ERRORS)
  target_compile_options(espalier_warnings INTERFACE -Werror)
endif()

# The instruction set. -ffast-math is never used: it would fold isfinite away.
add_library(espalier_arch INTERFACE)
if(ESPALIER_ENABLE_CUDA)
  # -march reaches the host compiler through Kokkos' own options
elseif(ESPALIER_ARCH)
  target_compile_options(espalier_arch INTERFACE -march=${ESPALIER_ARCH})
  if(ESPALIER_VECTOR_WIDTH)
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-mprefer-vector-width=${ESPALIER_VECTOR_WIDTH} ESPALIER_HAS_VECTOR_WIDTH)
    if(ESPALIER_HAS_VECTOR_WIDTH)
      target_compile_options(espalier_arch INTERFACE -mprefer-vector-width=${ESPALIER_VECTOR_WIDTH})
    endif()
  endif()
endif()
target_compile_options(espalier_arch INTERFACE -fno-math-errno -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT ESPALIER_ENABLE_CUDA AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  target_compile_options(espalier_arch INTERFACE -fpch-preprocess)  # ccache wants it to cache what uses such a header
endif()

# Headers that take long to read and that most files of a target need; each file still includes what it uses.
set(ESPALIER_SLOW_HEADERS <Kokkos_Core.hpp> <fmt/format.h> <fmt/ranges.h> <functional> <map> <string> <vector>)

# espalier_module(core SOURCES a.cpp ... DEPENDS ... PRECOMPILE <header>... [HOST]): the static library espalier_core, alias
# espalier::core. A HOST module has no kernels and includes no Kokkos: nvcc, which does not understand all of C++, never sees it.
function(espalier_module NAME)
  cmake_parse_arguments(ARG "HOST" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS;PRECOMPILE" ${ARGN})
  set(target espalier_${NAME})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(espalier::${NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${NAME} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/espalier>)
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS}
                                  PRIVATE ${ARG_PRIVATE_DEPENDS} $<BUILD_INTERFACE:espalier_warnings>
                                          $<BUILD_INTERFACE:espalier_arch>)
  if(NOT ESPALIER_ENABLE_CUDA)
    set(headers ${ESPALIER_SLOW_HEADERS} ${ARG_PRECOMPILE})
    if(ARG_HOST)
      list(REMOVE_ITEM headers <Kokkos_Core.hpp>)
    endif()
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
  if(ARG_HOST AND CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
    target_compile_options(${target} PRIVATE --host-only)
  endif()
  install(TARGETS ${target} EXPORT EspalierTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# espalier_host_sources(espalier a.cpp ...): sources of a target that include no Kokkos. nvcc, which takes several times as long as
# the compiler below it, never sees them.
function(espalier_host_sources TARGET)
  if(NOT CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
    target_sources(${TARGET} PRIVATE ${ARGN})
    return()
  endif()
  add_library(${TARGET}_host OBJECT ${ARGN})
  target_compile_options(${TARGET}_host PRIVATE --host-only)
  target_compile_features(${TARGET}_host PRIVATE cxx_std_20)
  set_target_properties(${TARGET}_host PROPERTIES POSITION_INDEPENDENT_CODE ON)
  foreach(kind INCLUDE_DIRECTORIES COMPILE_DEFINITIONS)
    set_property(TARGET ${TARGET}_host PROPERTY ${kind} $<TARGET_PROPERTY:${TARGET},${kind}>)
  endforeach()
  target_link_libraries(${TARGET}_host PRIVATE $<TARGET_PROPERTY:${TARGET},LINK_LIBRARIES>)
  target_sources(${TARGET} PRIVATE $<TARGET_OBJECTS:${TARGET}_host>)
endfunction()
