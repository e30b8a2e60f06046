# How tests are declared: one program a module, registered suite by suite and rank count by rank count.
find_package(GTest REQUIRED)

# Threads of the tests of one process, and of each rank. Hosts take at most 64 for a team of Kokkos.
if(ESPALIER_ENABLE_GPU_KERNELS_ON_HOST)
  set(ESPALIER_TEST_THREADS 64)
  set(ESPALIER_TEST_RANK_THREADS 64)
  set(timeout 600)
else()
  set(ESPALIER_TEST_THREADS 2)
  set(ESPALIER_TEST_RANK_THREADS 1)
  set(timeout 120)
endif()

# The environment of every test. A user's own (ci/test --all on a cluster) goes first: MPIEXEC_PREFLAGS, and so on.
set(ESPALIER_TEST_ENVIRONMENT OMP_NUM_THREADS=${ESPALIER_TEST_RANK_THREADS} OMP_PROC_BIND=false OMP_WAIT_POLICY=passive
    CACHE STRING "Environment of every test")
set(ESPALIER_TEST_TIMEOUT ${timeout} CACHE STRING "Seconds that a test may take")

# The main that all test programs share.
function(espalier_test_main)
  if(TARGET espalier_test_main)
    return()
  endif()
  add_library(espalier_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
  target_link_libraries(espalier_test_main PUBLIC espalier::parallel GTest::gtest PRIVATE espalier_warnings espalier_arch)
endfunction()

# espalier_test_program(parallel SOURCES test_a.cpp ... DEPENDS espalier::parallel): the program parallel_tests.
function(espalier_test_program MODULE)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRECOMPILE" ${ARGN})
  espalier_test_main()
  add_executable(${MODULE}_tests ${ARG_SOURCES})
  target_link_libraries(${MODULE}_tests PRIVATE espalier_test_main ${ARG_DEPENDS} espalier_warnings espalier_arch)
  if(NOT ESPALIER_ENABLE_CUDA)
    target_precompile_headers(${MODULE}_tests PRIVATE ${ESPALIER_SLOW_HEADERS} <gtest/gtest.h> ${ARG_PRECOMPILE})
  endif()
endfunction()

# espalier_add_test(parallel.collectives PROGRAM parallel_tests FILTER "Collectives*" RANKS 1 2 4): one entry a rank count,
# parallel.collectives.np1 ... PROGRAM defaults to <module>_tests, RANKS to 1, TIMEOUT to ESPALIER_TEST_TIMEOUT.
function(espalier_add_test NAME)
  cmake_parse_arguments(ARG "" "PROGRAM;FILTER;TIMEOUT" "RANKS;LABELS;ENVIRONMENT;ARGS" ${ARGN})
  string(REGEX MATCH "^[^.]+" module ${NAME})
  if(NOT ARG_PROGRAM)
    set(ARG_PROGRAM ${module}_tests)
  endif()
  if(NOT ARG_RANKS)
    set(ARG_RANKS 1)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT ${ESPALIER_TEST_TIMEOUT})
  endif()
  if(NOT DEFINED ARG_ENVIRONMENT)
    set(ARG_ENVIRONMENT ${ESPALIER_TEST_ENVIRONMENT})
  endif()
  set(filter "")
  if(ARG_FILTER)
    set(filter --gtest_filter=${ARG_FILTER})
  endif()
  foreach(ranks IN LISTS ARG_RANKS)
    set(test ${NAME}.np${ranks})
    add_test(NAME ${test}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:${ARG_PROGRAM}>
                     ${MPIEXEC_POSTFLAGS} --expect_ranks=${ranks} ${filter} ${ARG_ARGS})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks} LABELS "${module};${ARG_LABELS}"
                                            ENVIRONMENT "${ARG_ENVIRONMENT}")
  endforeach()
endfunction()

# espalier_preloaded_library(message_faults): of tests/support, a library for LD_PRELOAD that stands before calls of MPI and libc.
function(espalier_preloaded_library NAME)
  add_library(${NAME} MODULE ${PROJECT_SOURCE_DIR}/tests/support/${NAME}.cpp)
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(${NAME} SYSTEM PRIVATE $<TARGET_PROPERTY:MPI::MPI_CXX,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(${NAME} PRIVATE $<TARGET_PROPERTY:MPI::MPI_CXX,INTERFACE_COMPILE_DEFINITIONS>)
  target_link_libraries(${NAME} PRIVATE espalier_warnings ${CMAKE_DL_LIBS})
  target_compile_features(${NAME} PRIVATE cxx_std_20)
endfunction()
