# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Functions that several scripts in ci/ share; to be sourced. Messages go to stderr: stdout belongs to what a script prints.

script=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
CXX=${CXX:-g++}
ESPALIER_ARCH=${ESPALIER_ARCH:-native}  # what -march gets, for Espalier and for the libraries it builds
CACHE=${ESPALIER_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/espalier}
NUM_JOBS=${ESPALIER_JOBS:-$(nproc)}

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# fail CAUSE ADVICE [EXIT_CODE]
fail() {
  printf '%s: error: %s\n' "${0##*/}" "$1" >&2
  [[ -z ${2:-} ]] || printf '%s: what to do: %s\n' "${0##*/}" "$2" >&2
  exit "${3:-1}"
}

# What the script is for and how it is called: the comment at its head.
usage() { sed -n '4,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$script"; }

# An argument that the script does not know ends it before it has done anything.
refuse_argument() { fail "unknown argument: $1" "${2:-ci/${0##*/} --help}" 2; }

# How this user becomes root: "root", "sudo" or "none".
root_access() {
  if ((EUID == 0)); then echo root
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then echo sudo
  else echo none; fi
}

as_root() { if ((EUID == 0)); then "$@"; else sudo "$@"; fi; }

# logged LOG COMMAND...: runs a command quietly; shows the end of its log if it fails.
logged() {
  local log=$1; shift
  "$@" >"$log" 2>&1 && return 0
  tail -n 25 "$log" >&2
  return 1
}

# A key of what decides whether compiled libraries fit: the compiler and its version, the flags and the instruction set they
# resolve to (all three are in the predefined macros, "native" being resolved), and the rest of the arguments.
toolchain_key() {
  { "$CXX" -march="$ESPALIER_ARCH" ${CXXFLAGS:-} -dM -E -x c++ /dev/null || return 1; printf '%s\n' "${CXXFLAGS:-}" "$@"; } |
    sha256sum | cut -c 1-12
}

# cmake_install SOURCE BUILD PREFIX [-D...]: configures, builds and installs with the flags of this toolchain.
cmake_install() {
  local source=$1 build=$2 prefix=$3 name; shift 3
  name=$(basename "$build")
  logged "$build.log" cmake -G Ninja -S "$source" -B "$build" -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_CXX_FLAGS="-march=$ESPALIER_ARCH ${CXXFLAGS:-}" "$@" || fail "configuring $name failed (above)" "see the messages above"
  logged "$build.log" cmake --build "$build" -j "$NUM_JOBS" || fail "building $name failed (above)" "see the messages above"
  logged "$build.log" cmake --install "$build" || fail "installing $name into $prefix failed (above)" "is there space left?"
}

# A stage in the cache for what will become $1, locked against a second run of these scripts; removed on exit unless published.
open_stage() {
  mkdir -p "$CACHE" 2>/dev/null && [[ -w $CACHE ]] || fail "cannot write to $CACHE" "name another folder in ESPALIER_CACHE" 8
  exec 9>"$CACHE/lock"
  flock -n 9 || { note "another run is building into $CACHE, waiting for it"; flock 9; }
  stage=$(mktemp -d "$CACHE/stage.XXXXXX")
  trap 'rm -rf "$stage"' EXIT
  trap 'exit 130' INT TERM
}

# The archive of Kokkos 5 in the pool of Debian.
kokkos_archive=kokkos_5.0.2.orig.tar.gz
kokkos_sha256=188817bb452ca805ee8701f1c5adbbb4fb83dc8d1c50624566a18a719ba0fa5e

offline_advice="without a network, or where no mirror has it: put the archive into a folder and name that in ESPALIER_SOURCES"

# fetch_archive POOL_FOLDER NAME SHA256: puts a source archive of Debian into $stage, from the folder ESPALIER_SOURCES or
# from a mirror that this machine's apt is configured for (deb822 or one-line), with apt's own means, as any user.
fetch_archive() {
  local folder=$1 name=$2 sha256=$3 uri helper=/usr/lib/apt/apt-helper
  if [[ ${ESPALIER_SOURCES:-} ]]; then
    note "using $name from $ESPALIER_SOURCES"
    [[ -f $ESPALIER_SOURCES/$name ]] || return 1
    ln -s "$(realpath "$ESPALIER_SOURCES/$name")" "$stage/$name"
    [[ $(sha256sum "$stage/$name" | cut -d ' ' -f 1) == "$sha256" ]] ||
      fail "$ESPALIER_SOURCES/$name is not the archive that was pinned" "wanted: SHA-256 $sha256" 3
    return 0
  fi
  [[ -x $helper ]] || return 1
  for uri in $(apt-get --print-uris update 2>/dev/null | sed -nE "s#^'([^']*)/dists/.*#\1#p" | sort -u); do
    note "looking for $name in $uri/pool"
    logged "$stage/download.log" "$helper" -o APT::Sandbox::User= -o Acquire::Retries=2 download-file \
      "$uri/pool/main/$folder/$name" "$stage/$name" "SHA256:$sha256" && return 0
  done
  return 1
}

# check_kokkos PREFIX [CMAKE_LINE [TARGET]]: a C++20 program that uses what was built compiles, links and runs.
check_kokkos() {
  local dir=$stage/check; mkdir -p "$dir"
  cat >"$dir/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.22)
project(check_kokkos CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(Kokkos REQUIRED)
${2:-}
add_executable(check_kokkos main.cpp)
target_link_libraries(check_kokkos Kokkos::kokkos ${3:-})
CMAKE
  cat >"$dir/main.cpp" <<'CPP'
#include <Kokkos_Core.hpp>
#include <concepts>
int main(int argc, char** argv) {
  Kokkos::initialize(argc, argv);
  double sum = 0;
  Kokkos::parallel_reduce("sum", 1000, KOKKOS_LAMBDA(int i, double& s) { s += i; }, sum);
  Kokkos::finalize();
  static_assert(std::integral<int>);
  return sum == 499500 ? 0 : 1;
}
CPP
  logged "$dir.log" cmake -G Ninja -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_CXX_FLAGS="-march=$ESPALIER_ARCH" &&
    logged "$dir.log" cmake --build "$dir/build" &&
    OMP_PROC_BIND=false logged "$dir.log" "$dir/build/check_kokkos" || fail "the Kokkos that was built does not work (above)" ""
}

# Moves the finished $stage/prefix to its place at once, so that an interrupted build leaves nothing that looks complete.
publish() {
  grep -rlIF "$stage/prefix" "$stage/prefix" | xargs -r sed -i "s#$stage/prefix#$1#g"
  mv -T "$stage/prefix" "$1"
}

# configure FOLDER KOKKOS_PREFIX [TESTS=ON|BENCH=ON|EXAMPLES=ON|-D...]...: says one line, and everything if it fails.
configure() {
  local folder=$1 prefix=$2 argument arguments=(); shift 2
  for argument; do
    case $argument in
      -D*) arguments+=("$argument") ;;
      ?*) arguments+=("-DESPALIER_ENABLE_$argument") ;;
    esac
  done
  # Several files of a module in one translation unit: half the time from nothing. The presets, for who edits, compile file by file.
  [[ ${arguments[*]} =~ CMAKE_UNITY_BUILD= ]] ||
    arguments+=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=16)
  # Where two MPIs are installed, Debian's alternatives may give the compiler of one and the launcher of the other.
  if command -v mpicxx.mpich >/dev/null && [[ ! ${arguments[*]} =~ MPI_CXX_COMPILER ]]; then
    arguments+=(-DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE="$(command -v mpiexec.mpich)")
  fi
  if command -v ccache >/dev/null && [[ ! ${arguments[*]} =~ COMPILER_LAUNCHER ]]; then
    # Objects are shared between clones: paths are relative to this one, and what "native" means here is part of the key.
    arguments+=("-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_BASEDIR=$PWD;CCACHE_NOHASHDIR=1;CCACHE_NAMESPACE=$(
      toolchain_key);CCACHE_SLOPPINESS=pch_defines,time_macros;ccache")
  fi
  note "configuring $folder/ with the Kokkos in $prefix"
  mkdir -p "$folder" || fail "cannot write to $PWD/$folder" "is the disk full, or the folder read-only?" 8
  logged "$folder/configure.log" cmake -G Ninja -S . -B "$folder" -DCMAKE_PREFIX_PATH="$prefix${CMAKE_PREFIX_PATH:+;${CMAKE_PREFIX_PATH//:/;}}" \
    -DESPALIER_ARCH="$ESPALIER_ARCH" "${arguments[@]}" ||
    fail "cmake could not configure $folder/ (above)" "if a dependency changed place: rm -r $folder, then again"
}

# build FOLDER [TARGET...]
build() {
  local folder=$1; shift
  cmake --build "$folder" -j "$NUM_JOBS" ${1:+--target "$@"} >&2 || fail "the build in $folder/ failed (above)" ""
}

# save_references FOLDER: config.toml, and beside it what a step of it gives on this CPU, for `espalier verify --against`.
# A model with all that the kernels for GPUs tell apart, heads of 64 channels and an odd vocabulary among it, and small enough to be
# carried.
save_references() {
  local precision root=$PWD
  seq 20000 >"$1/text.txt"
  "$root/build/espalier" data pack --output "$1/train.bin" "$1/text.txt" >/dev/null
  rm "$1/text.txt"
  cat >"$1/config.toml" <<'TOML'
[model]
preset = "byte-1m"
vocab_size = 259
num_layers = 2
hidden_size = 128
num_heads = 2
ffn_hidden_size = 256
max_sequence_length = 160
[data]
train = ["train.bin"]
[batch]
global_batch_size = 8
micro_batch_size = 2
[run]
steps = 10
TOML
  for precision in fp64 fp32 bf16 fp16; do
    (cd "$1" && logged "$1.log" "$root/build/espalier" verify config.toml --steps 1 --precision "$precision" \
      --save "$precision") || fail "espalier verify --save failed (above)" ""
  done
}

# trains_as ESPALIER MPIEXEC REFERENCES "PRECISION RANKS"...: another build trains what that of the references does, in all
# layouts of so many ranks. Prints how many layouts those are.
trains_as() {
  local espalier=$1 mpiexec=$2 references=$3 layouts=0 check; shift 3
  for check; do
    (cd "$references" && logged log "$mpiexec" -n "${check#* }" "$espalier" verify config.toml --precision "${check% *}" \
      --against "${check% *}") ||
      fail "another model than that of the kernels for CPUs, in ${check% *} on ${check#* } ranks (above)" ""
    layouts=$((layouts + $(sed -n 's/^\([0-9]*\) of .* layouts train the model.*/\1/p' "$references/log")))
  done
  echo "$layouts"
}

# mpiexec_of FOLDER: that of a configured build.
mpiexec_of() { sed -n 's/^MPIEXEC_EXECUTABLE:[^=]*=//p' "$1/CMakeCache.txt"; }

# The C++ files of this repository.
source_files() { find core parallel models io planning training diagnosis app tests bench examples -name '*.[ch]pp' 2>/dev/null | sort; }
