#!/bin/bash
# Makes sure that what pip cannot bring is there.      need_system_packages.sh [PYTHON [tests]]
#
# A C compiler, Python's header files, the venv module: as root on Debian or Ubuntu what is missing is installed;
# otherwise this says what to install and ends with 1.
#
# With `tests` also Pacemaker, Corosync and what tests of the agents use, as far as that is possible here.  This never
# fails: tests that lack something are skipped and name it.
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

# Each line: a file that shows that the package is there, and the package.
needed_by_tests() {
    while read -r file package; do
        [ -e "$file" ] || echo "$package"
    done <<'END'
/usr/sbin/pacemakerd pacemaker
/usr/sbin/crm_mon pacemaker-cli-utils
/usr/sbin/corosync corosync
/usr/lib/ocf/resource.d/heartbeat/IPaddr2 resource-agents
/usr/sbin/ocf-tester resource-agents
/sbin/ip iproute2
/usr/bin/pgrep procps
/usr/bin/ping iputils-ping
/usr/bin/xmllint libxml2-utils
/usr/sbin/pcs pcs
/usr/sbin/crm crmsh
END
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
