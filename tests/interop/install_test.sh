#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Goal: what "meson install" puts down is enough for somebody else's program: headers, both
# libraries, pkg-config. Bound: two compilations. Usage: install_test.sh PROGRAM.c BUILD-DIR
set -eu
program=$1 build=$2
command -v pkg-config >/dev/null || { echo "pkg-config is not installed"; exit 77; }
root=$(mktemp -d "${TMPDIR:-/tmp}/weir-install.XXXXXX")
trap 'rm -rf "$root"' EXIT

meson install -C "$build" --no-rebuild --quiet --destdir "$root" >"$root/log" 2>&1 || {
    cat "$root/log"
    exit 1
}
pc=$(find "$root" -name weir.pc)
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR=
prefix=$(pkg-config --variable=prefix weir)
flags() { pkg-config --define-variable=prefix="$root$prefix" "$@" weir; }

echo "shared library"
# shellcheck disable=SC2046
cc -o "$root/shared" "$program" $(flags --cflags --libs)
LD_LIBRARY_PATH="$lib" "$root/shared"

echo "static library"
mkdir "$root/archive" # where the linker finds no shared one
cp "$lib/libweir.a" "$root/archive"
# shellcheck disable=SC2046 # one word each is meant
cc -o "$root/static" "$program" -L"$root/archive" $(flags --static --cflags --libs)
ldd "$root/static" | grep libweir && exit 1
"$root/static"

echo "command"
"$root$prefix/bin/weir" --version
"$root$prefix/bin/weir" --help >/dev/null
! nm -D --defined-only "$lib/libweir.so" | awk '{print $3}' | grep -v '^weir_' || {
    echo "the shared library exports more than its interface"
    exit 1
}
