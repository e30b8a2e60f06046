# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What ci/gpu brings along to a machine with a GPU, and what it takes from PyTorch there; to be sourced by ci/gpu.

programs=(core_tests models_tests espalier parallel_tests stream_graph_tests parallel_faults training_tests)

# What compiled programs depend on.
sources_hash() {
  { echo "sm_$1"
    find core parallel models io planning training diagnosis app tests cmake CMakeLists.txt -type f -not -name '*.py*' -not -name '*.sh' |
      LC_ALL=C sort | xargs sha256sum; } | sha256sum | cut -c 1-16
}

# ---- The pack ----

# The packages of the files; what comes with every compiler stays out.
packages_of() {
  dpkg-query -S "$@" 2>/dev/null | sed -E 's/:.*//' | sort -u |
    grep -vxE 'libc6|libgcc-s1|libstdc\+\+6|libgomp1|libgfortran5|libquadmath0|libc-bin|diversion by .*'
}

# Libraries that the files are linked to, as dpkg knows their paths, with and without the /usr of a merged system.
libraries_of() {
  ldd "$@" | sed -nE 's/.* => (\/[^ ]+) .*/\1/p' | sort -u | while read -r library; do
    printf '%s\n' "$library" "$(realpath "$library")" "${library#/usr}" "$(realpath "$library" | sed 's#^/usr##')"
  done | sort -u
}

make_pack() {
  [[ -x build/espalier ]] || fail "build/espalier is missing: it computes the references" "ci/build --target espalier" 2
  local libraries=/usr/lib/$triplet
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$pack" "$work/debs" "$work/prefix" "$work/reference" || fail "cannot write to $pack" "" 8
  pack=$(realpath "$pack")

  local packages=(mpich libmpich-dev libhdf5-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libxxhash-dev libjs-chart.js
    libpcre2-dev libutf8proc-dev libsentencepiece-dev libsimdjson-dev zlib1g-dev libzstd-dev libgtest-dev libgmock-dev googletest) package
  # shellcheck disable=SC2046  # one word a path
  mapfile -t -O "${#packages[@]}" packages < <(packages_of $(libraries_of /usr/bin/mpiexec.hydra /usr/bin/hydra_pmi_proxy \
    "$libraries/libmpich.so.12" "$libraries/libhdf5_serial.so" "$libraries/libfmt.so" "$libraries/libtomlplusplus.so" \
    "$libraries/libsentencepiece.so"))
  packages+=(libmpich12 libfmt9 libtomlplusplus3 libxxhash0 libhdf5-103-1 libpcre2-8-0 libutf8proc2 libsentencepiece0
    libsimdjson14 zlib1g libzstd1)
  mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
  note "collecting ${#packages[@]} Debian packages"
  (cd "$work/debs" && logged "$work/apt.log" apt-get -q -o APT::Sandbox::User= download "${packages[@]}") ||
    fail "apt-get could not download them (above)" "apt-get update; ci/deps test installs what they are found by" 2
  for package in "$work"/debs/*.deb; do dpkg -x "$package" "$work/prefix"; done
  # Documentation and static libraries of what is linked dynamically.
  rm -rf "$work"/prefix/usr/share/{doc,man,info,lintian} "$work"/prefix/usr/lib/$triplet/lib{mpi,fmpi,opa,hdf5}*.a
  rm -rf "$work"/prefix/usr/lib/$triplet/{*fort*,hdf5/serial/*.a} "$work"/prefix/{etc,var}
  tar -C "$work/prefix" -cJf "$pack/prefix.tar.xz" .

  stage=$work
  fetch_archive k/kokkos "$kokkos_archive" "$kokkos_sha256" || fail "$kokkos_archive is not to be had" "$offline_advice"
  cp -L "$work/$kokkos_archive" "$pack"
  (ci/cudnn_frontend && mkdir "$work/cudnn_frontend" && cp -r "$(ci/cudnn_frontend --prefix)/include" "$work/cudnn_frontend" &&
    tar -C "$work" -cJf "$pack/cudnn_frontend.tar.xz" cudnn_frontend) || note "without the headers of cudnn-frontend"

  note "computing the references on this CPU"
  save_references "$work/reference"
  tar -C "$work/reference" -cJf "$pack/reference.tar.xz" .
  pack_programs
  du -csh "$pack"/*
}

# With the lists of tests, whose paths are those of this tree.
pack_programs() {
  local built=build-gpu/built_from
  rm -f "$pack/programs.tar.xz"
  if [[ ! -f $built || $(<$built) != "$(sources_hash "$(<$built.arch)")" ]]; then
    note "no programs are packed: build-gpu/ is not of these sources (ESPALIER_CUDA_ARCH=90 ci/gpu --pack $pack build)"
    return 0
  fi
  mkdir "$work/programs"
  (cd build-gpu && find . -name CTestTestfile.cmake -not -path './prefix/*' -exec cp --parents {} "$work/programs" ';')
  # The launcher of the pack, whichever was there when the tests were listed.
  find "$work/programs" -type f -exec \
    sed -E -i "s#\"[^\" ]*/mpiexec(\.mpich)?\"#\"$prefix/bin/mpiexec.mpich\"#g; s#$root#@ROOT@#g" {} +
  (cd build-gpu && cp built_from built_from.arch "$work/programs" && cp "${programs[@]}" "$work/programs")
  (cd "$work/programs" && strip "${programs[@]}")
  # What the programs share, xz finds as far back as 64 MB: nvcc has compressed their kernels already.
  XZ_OPT=-9 tar -C "$work/programs" -cJf "$pack/programs.tar.xz" .
  cp "$built" "$pack"
}

# Only those of these sources, also where others have been unpacked before.
unpack_programs() {
  [[ ! -f build-gpu/build.ninja ]] || return 0
  local wanted; wanted=$(sources_hash "$arch")
  [[ ! -f build-gpu/built_from || $(<build-gpu/built_from) != "$wanted" ]] || return 0
  rm -f build-gpu/built_from
  [[ -f $pack/programs.tar.xz ]] || return 0
  if [[ ! -f $pack/built_from || $(<"$pack/built_from") != "$wanted" ]]; then
    note "the programs in $pack are of other sources, or for another GPU: they are not used (ci/gpu pack, after a build)"
    return 0
  fi
  extract "$pack/programs.tar.xz" build-gpu || fail "$pack/programs.tar.xz cannot be unpacked" "make it again: ci/gpu pack" 2
  find build-gpu -name CTestTestfile.cmake -not -path '*/prefix/*' -exec sed -i "s#@ROOT@#$root#g" {} +
}

of_the_pack() { [[ ! -f build-gpu/build.ninja && -f build-gpu/built_from ]]; }

# The compiler of MPI and that of HDF5 for the unpacked prefix: theirs name /usr.
compiler_wrapper() {
  {
    printf '#!/bin/sh\nflags="%s"\n' "$3"
    printf 'for argument; do [ "$argument" != -show ] || { echo %s $flags; exit 0; }; done\n' "$2"
    printf 'exec %s "$@" $flags\n' "$2"
  } >"$prefix/bin/$1"
  chmod +x "$prefix/bin/$1"
}

# extract ARCHIVE FOLDER: also where there is no xz.
extract() { tar -C "$2" -xf "$1" 2>/dev/null || python3 -m tarfile -e "$1" "$2"; }

unpack() {
  [[ -f $pack/prefix.tar.xz ]] || return 0
  export ESPALIER_SOURCES=${ESPALIER_SOURCES:-$(realpath "$pack")}
  if [[ ! -d $prefix || $pack/prefix.tar.xz -nt $prefix/unpacked ]]; then
    rm -rf "$prefix" "$root/build-gpu/reference"
    mkdir -p "$prefix/bin" "$root/build-gpu/reference"
    extract "$pack/prefix.tar.xz" "$prefix" && extract "$pack/reference.tar.xz" "$root/build-gpu/reference" ||
      fail "$pack cannot be unpacked" "make it again: ci/gpu pack" 2
    local libraries=$prefix/usr/lib/$triplet
    compiler_wrapper mpicxx.mpich "$CXX" "-I$prefix/usr/include/$triplet/mpich -L$libraries -lmpich"
    compiler_wrapper h5cc gcc "-I$prefix/usr/include/hdf5/serial -L$libraries/hdf5/serial -lhdf5"
    # The launcher and its helper need the libraries, too; what it starts has its own paths to them.
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec %s "$@"\n' "$libraries" \
      "$prefix/usr/bin/mpiexec.hydra" >"$prefix/bin/mpiexec.mpich"
    chmod +x "$prefix/bin/mpiexec.mpich"
    touch "$prefix/unpacked"
  fi
  PATH=$prefix/bin:$PATH
}

# ---- What PyTorch has ----

# Folders of NVIDIA's libraries that PyTorch brings along, one a line: of each package, or of all in one.
folders_of_pytorch() {
  python3 -c 'import glob, importlib.util as u
spec = u.find_spec("nvidia")
for place in spec.submodule_search_locations if spec else []:
    print(*glob.glob(place + "/*/lib"), sep="\n")' 2>/dev/null
}

# find_of_pytorch NAME: nccl or cudnn where the toolkit has none: that of PyTorch, under the names that a linker looks for.
find_of_pytorch() {
  local from
  [[ ! -f $(dirname "$(command -v nvcc)")/../include/$1.h && ! -f /usr/include/$1.h ]] || return 0
  while read -r from; do
    [[ -f $from/../include/$1.h ]] || continue
    mkdir -p "build-gpu/$1/lib"
    ln -sfn "$from/../include" "build-gpu/$1/include"
    ln -sf "$from/lib$1"*.so.* "build-gpu/$1/lib/"
    ln -sf "$(compgen -G "$from/lib$1.so.*")" "build-gpu/$1/lib/lib$1.so"
    return 0
  done < <(folders_of_pytorch)
  return 1
}

# Libraries that packed programs do not find here.
missing_libraries() { ldd build-gpu/espalier 2>&1 | sed -nE 's/^[[:space:]]*([^ ]+) => not found.*/\1/p' | sort -u; }
has_all_libraries() { [[ -z $(missing_libraries) ]]; }

# They are taken from PyTorch, with all beside them, which they may ask for when they run.
link_missing_libraries() {
  local library from
  mkdir -p build-gpu/cuda/lib
  for library in $(missing_libraries); do
    while read -r from; do
      [[ ! -e $from/$library ]] || ln -sf "$from"/*.so* build-gpu/cuda/lib/
    done < <(folders_of_pytorch)
  done
}

# The folder of cuDNN's headers for C++: of the pack, or as ci/cuda gets them.
cudnn_frontend() {
  if [[ -f $pack/cudnn_frontend.tar.xz ]]; then
    [[ -d build-gpu/cudnn_frontend ]] || extract "$pack/cudnn_frontend.tar.xz" build-gpu
    echo "$root/build-gpu/cudnn_frontend/include"
  elif ci/cudnn_frontend >&2; then
    echo "$(ci/cudnn_frontend --prefix)/include"
  fi
}
