#!/bin/bash
# Makes sure that what pip cannot bring is there: a C compiler, Python's header files, the venv module.
# As root on Debian or Ubuntu it installs what is missing; otherwise it says what to install and ends with 1.
set -euo pipefail
python=${1:-python3}

if ! command -v "$python" >/dev/null; then
    version=3
    missing=(python3 python3-venv python3-dev)
else
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    missing=()
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("python$version-venv")
    "$python" -c 'import os, sysconfig as s; raise SystemExit(not os.path.exists(s.get_path("include") + "/Python.h"))' \
        || missing+=("python$version-dev")
fi
command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Missing: ${missing[*]} (names of Debian packages). Please install them and run make again." >&2
    exit 1
fi
echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
