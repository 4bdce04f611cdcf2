#!/bin/sh
# hpcx.sh DIRECTORY: HPC-Xs whose UCX is Debian's, and whose OpenMPI source "builds" Debian's. Like the real ones they have
# OpenMPI's source beside it, and name the place where they were built in their text files. hpcx.tbz has the layout until 2.23,
# hpcx-2.26.tbz that of 2.26 (coreweave/nccl-tests at cb86553, Dockerfile:153-166).
set -eu

here=$(dirname "$0")
lib=/usr/lib/x86_64-linux-gnu
top=/tmp/hpcx-standin
built=/build-result/hpcx-standin
mkdir -p "$top/ucx/bin" "$top/ucx/lib/pkgconfig" "$top/ucx/include" "$top/ucc/bin" "$top/ucc/lib/ucc" "$top/ucc/include/ucc/api" \
  "$top/sources" "$top/ompi/bin" "$top/nccl_rdma_sharp_plugin/lib" "$1"

cp /usr/bin/ucx_info "$top/ucx/bin/"
cp -d $lib/libuc[mpst].so* $lib/libucs_signal.so* "$top/ucx/lib/"
cp -r $lib/ucx "$top/ucx/lib/"
cp -r /usr/include/uc[mpst] "$top/ucx/include/"
printf 'prefix=%s/ucx\n' "$built" > "$top/ucx/lib/pkgconfig/ucx.pc"

cp "$here/ucc.h" "$top/ucc/include/ucc/api/"
gcc -shared -fPIC -o "$top/ucc/lib/libucc.so.1" -Wl,-soname,libucc.so.1 "$here/ucc.c" -lucp -lucs
ln -s libucc.so.1 "$top/ucc/lib/libucc.so"
# Without a collective layer and a memory component UCC does not start.
for part in cl_basic mc_cpu; do
  echo "int ucc_$part;" | gcc -shared -fPIC -o "$top/ucc/lib/ucc/libucc_$part.so" -x c -
done
gcc -o "$top/ucc/bin/ucc_info" "$here/ucc_info.c" -I "$top/ucc/include" -L "$top/ucc/lib" -lucc -Wl,-rpath-link,"$top/ucx/lib"
echo 'int ncclNetPlugin_v8;' |
  gcc -shared -fPIC -o "$top/nccl_rdma_sharp_plugin/lib/libnccl-net.so" -x c - -Wl,--no-as-needed -lucp
echo 'echo "the OpenMPI that HPC-X came with" >&2; exit 1' > "$top/ompi/bin/mpirun"

# OpenMPI's "source": Debian's build of it, and a configure that wants what the real one would be given.
source=/tmp/openmpi-gitclone
mkdir -p "$source/tree/bin" "$source/tree/lib/openmpi" "$source/tree/include" "$source/tree/share"
cp "$here/openmpi/configure" "$source/"
for program in mpirun orted orterun ompi_info; do cp -L "/usr/bin/$program" "$source/tree/bin/"; done
cp -L /usr/bin/mpicc.openmpi "$source/tree/bin/mpicc"
cp -rL $lib/openmpi/include/. "$source/tree/include/"
cp -rL $lib/openmpi/lib/openmpi3/. "$source/tree/lib/openmpi/"
cp -rL /usr/share/openmpi "$source/tree/share/"
for library in libmpi libopen-rte libopen-pal; do
  cp -L $lib/$library.so.40 "$source/tree/lib/"
  ln -s $library.so.40 "$source/tree/lib/$library.so"
done
# Debian's looks for its parts where Debian has them, below the prefix.
mkdir -p "$source/tree/lib/x86_64-linux-gnu/openmpi"
ln -s ../.. "$source/tree/lib/x86_64-linux-gnu/openmpi/lib"
ln -s ../../../include "$source/tree/lib/x86_64-linux-gnu/openmpi/include"
ln -s openmpi "$source/tree/lib/openmpi3"
# What Debian's is linked with besides and a real build would have inside.
find "$source/tree" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + |
  sed -nE 's/.* => (\S*lib(mca_common|event|hwloc|pmix|munge|fabric|psm|infinipath|psm2|ltdl)\S*) .*/\1/p' | sort -u | while read -r file; do
  cp -L "$file" "$source/tree/lib/"
done
sed -i 's#/openmpi *$##' "$source"/tree/share/openmpi/*-wrapper-data.txt
tar -I 'gzip -1' -cf "$top/sources/openmpi-gitclone.tar.gz" -C /tmp openmpi-gitclone
# Whoever sources it sets the variable.
# shellcheck disable=SC2016
echo 'export HPCX_MPI_DIR=${HPCX_DIR}/ompi' > "$top/hpcx-init.sh"
tar -cjf "$1/hpcx.tbz" -C /tmp hpcx-standin

mv "$top/ompi" "$top/ompi4"
cp -r "$top/ompi4" "$top/ompi5"
ln -s ompi5 "$top/ompi"
mv "$top/sources/openmpi-gitclone.tar.gz" "$top/sources/openmpi4-gitclone.tar.gz"
# An OpenMPI 5 has another configure.
mkdir -p /tmp/openmpi5/openmpi-gitclone
printf '#!/bin/sh\necho "configure: error: this is OpenMPI 5" >&2\nexit 1\n' > /tmp/openmpi5/openmpi-gitclone/configure
chmod +x /tmp/openmpi5/openmpi-gitclone/configure
tar -czf "$top/sources/openmpi5-gitclone.tar.gz" -C /tmp/openmpi5 openmpi-gitclone
# shellcheck disable=SC2016
echo 'export HPCX_MPI_DIR=${HPCX_DIR}/ompi5' > "$top/hpcx-init.sh"
tar -cjf "$1/hpcx-2.26.tbz" -C /tmp hpcx-standin
