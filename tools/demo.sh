#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Usage: tools/demo.sh     (`make demo` installs what it needs first)
# Builds Weir, sends a file of 257 MiB from one Weir stack to another in one process and compares
# checksums, then measures Weir against the kernel's loopback, by turns, and prints the medians side
# by side. A few minutes at most.
#   DEMO_ROUNDS=3 DEMO_SECONDS=2    rounds a test, seconds a run
set -eu
export WEIR_RESULTS=off # what is measured here goes into nobody's store
cd "$(dirname "$0")/.."
tools/build.sh release >/dev/null

scratch=$(mktemp -d "${TMPDIR:-/tmp}/weir-demo.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

echo "1. A file through two Weir stacks"
head -c $((257 * 1048576)) /dev/urandom >"$scratch/source"
build/weir copy "$scratch/source" "$scratch/copy"
want=$(sha256sum <"$scratch/source")
have=$(sha256sum <"$scratch/copy")
rm -f "$scratch/source" "$scratch/copy"
if [ "$want" != "$have" ]; then
    echo "demo: the copy differs: ${have%% *}, not ${want%% *}" >&2
    exit 1
fi
echo "   257 MiB, SHA-256 ${want%% *} on both sides"
echo
echo "2. Weir (two stacks, memory link) and the kernel (loopback), by turns, medians"
python3 tools/demo.py "${DEMO_ROUNDS:-3}" "${DEMO_SECONDS:-2}"
