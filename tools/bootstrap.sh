#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Usage: tools/bootstrap.sh [all|demo|check]
# See that the Debian packages are there which building (all), the demonstration or the checks need,
# and install those that are not: as root, or by sudo where it asks for no password. Otherwise say
# which are missing and fail. What only some tests need may stay away: those tests are skipped.
set -eu

build="gcc libc6-dev meson ninja-build pkg-config python3 libbsd-dev libck-dev libcmocka-dev
       libhttp-parser-dev libjansson-dev libncurses-dev libpcap-dev libsodium-dev libsqlite3-dev libzstd-dev
       systemtap-sdt-dev"
optional=""
case "${1:-all}" in
all | demo) ;;
check)
    optional="bpftrace clang clang-format libclang-rt-14-dev curl iproute2 iputils-ping ministat netcat-openbsd tmux tshark
              prometheus python3-prometheus-client wrk"
    ;;
*)
    echo "usage: tools/bootstrap.sh [all|demo|check]" >&2
    exit 2
    ;;
esac

# Those of the named packages that are not installed, on one line.
missing() {
    for package in "$@"; do
        case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
        *" installed") ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

if ! command -v dpkg-query >/dev/null; then
    echo "bootstrap: not a Debian system: taking it that the packages are there" >&2
    exit 0
fi
# shellcheck disable=SC2086
need=$(missing $build)
# shellcheck disable=SC2086
want=$(missing $optional)
[ -n "$need$want" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    sudo=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo="sudo -n"
elif [ -n "$need" ]; then
    echo "bootstrap: packages are missing. Install them as root, then try again:" >&2
    echo "    apt-get update && apt-get install $need$want" >&2
    exit 1
else
    echo "bootstrap: some tests will be skipped. To run them: apt-get install $want" >&2
    exit 0
fi
echo "bootstrap: installing $need$want" >&2
# shellcheck disable=SC2086
{
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q update </dev/null &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
            $need $want </dev/null
} >&2 || {
    echo "bootstrap: apt-get failed; wanted: $need$want" >&2
    [ -z "$need" ]
}
