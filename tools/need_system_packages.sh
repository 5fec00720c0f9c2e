#!/bin/bash
# Makes sure that what pip cannot bring is there.      need_system_packages.sh [PYTHON [tests]]
#
# A C compiler, Python's header files, the venv module: as root on Debian or Ubuntu what is missing is installed;
# otherwise this says what to install and ends with 1.
#
# With `tests` also what test_packages.txt lists, as far as that is possible here.  This never fails: tests that lack
# something are skipped and name it.
set -euo pipefail
python=${1:-python3}
installable() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

needed() {
    if ! command -v "$python" >/dev/null; then
        echo python3 python3-venv python3-dev
    else
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "python$version-venv"
        "$python" -c 'import os, sysconfig as s; raise SystemExit(not os.path.exists(s.get_path("include") + "/Python.h"))' \
            || echo "python$version-dev"
    fi
    command -v "${CC:-gcc}" >/dev/null || echo gcc libc6-dev
}

needed_by_tests() {
    while read -r file package mark; do
        [ -e "$file" ] || [ "$mark" = manual ] || echo "$package"
    done < <(grep '^/' "$(dirname "$0")/test_packages.txt")
}

install() {
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Debian starts what it installs; a cluster of its own is nothing that this machine asked for.
start_nothing() {
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
}

install_what_can_be() {
    start_nothing
    apt-get update -qq || true
    install "$@" && return
    for package in "$@"; do
        install "$package" || echo "Some tests will be skipped: $package could not be installed."
    done
}

export DEBIAN_FRONTEND=noninteractive
read -ra missing <<<"$(needed | tr '\n' ' ')"
if [ ${#missing[@]} -gt 0 ]; then
    if ! installable; then
        echo "Missing: ${missing[*]} (names of Debian packages). Please install them and run make again." >&2
        exit 1
    fi
    echo "Installing ${missing[*]}"
    apt-get update -qq
    install "${missing[@]}"
fi

if [ "${2:-}" = tests ]; then
    read -ra missing <<<"$(needed_by_tests | sort -u | tr '\n' ' ')"
    if [ ${#missing[@]} -gt 0 ]; then
        if ! installable; then
            echo "Some tests will be skipped. They need ${missing[*]} (names of Debian packages)."
        else
            echo "Installing ${missing[*]}"
            install_what_can_be "${missing[@]}"
        fi
    fi
fi
