#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Build everything in every way, run every test; the last line is the sum. See tools/check.py.
cd "$(dirname "$0")/.." && exec python3 tools/check.py "$@" </dev/null
