#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Usage: tools/build.sh [release|asan|tsan|clang]
#   release  gcc, optimised, with symbols          in build/ (the default)
#   asan     gcc, address and undefined sanitizers in build-asan/
#   tsan     clang, thread sanitizer               in build-tsan/
#   clang    clang's warnings, optimised           in build-clang/
set -eu
cd "$(dirname "$0")/.."

case "${1:-release}" in
release) dir=build cc=gcc options="" ;;
# With sanitizers on gcc warns of what cannot happen: warnings are for the other builds.
asan) dir=build-asan cc=gcc options="-Doptimization=2 -Db_sanitize=address,undefined -Dwerror=false" ;;
tsan) dir=build-tsan cc=clang options="-Doptimization=2 -Db_sanitize=thread -Db_lundef=false" ;;
clang) dir=build-clang cc=clang options="" ;;
*)
    sed -n '3,8s/^# //p' "$0" >&2
    exit 2
    ;;
esac

place=.
[ ! -e $dir ] || place=$dir
if [ ! -w $place ]; then
    echo "build: no permission to write to $PWD/$dir: copy the sources to a place of your own" >&2
    exit 1
fi
# A build directory knows where it was made: after a move it is of no use.
info=$dir/meson-info/meson-info.json
if [ -f $info ] && ! python3 -c 'import json, os, sys
sys.exit(json.load(open(sys.argv[1]))["directories"]["source"] != os.getcwd())' $info; then
    echo "build: the sources were elsewhere when $dir was made: making it anew" >&2
    rm -rf $dir
fi
# shellcheck disable=SC2086
[ -f $dir/build.ninja ] || CC=$cc meson setup $dir $options >&2
exec ninja -C $dir
