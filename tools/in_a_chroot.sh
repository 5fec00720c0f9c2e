#!/bin/bash
# Builds and tests the last commit where nothing was installed by hand: in a new Debian below a temporary directory.
#         in_a_chroot.sh [PYTEST ARGUMENT ...]         (root; debootstrap, git; no spaces in arguments)
#
# Without arguments: the tests that use the system's programs.  What is skipped is listed with its reason.
# Settings, with what they are if not set:
#     SUITE=bookworm  MIRROR=http://deb.debian.org/debian  PIP_*: as pip knows them
#     LIMIT=5400   seconds until everything is ended
#     PLACE        a directory for the new machine that is kept, and used again as it is the next time
#
# Mounts and processes are in namespaces that end with this program, however it ends; only kill -9 leaves the files.
set -euo pipefail
suite=${SUITE:-bookworm} mirror=${MIRROR:-http://deb.debian.org/debian} limit=${LIMIT:-5400}
tree=$(cd "$(dirname "$0")/.." && pwd)
tests=(
    tests/unit/test_system_packages.py tests/unit/ha/test_render_tools.py tests/unit/ha/test_render_scheduler.py
    tests/unit/test_load_generator.py tests/agents tests/rgmanager tests/packaging tests/docker
    tests/faults/test_virtual_ip.py tests/pacemaker/test_example.py tests/pacemaker/test_vagrant.py
    tests/spark/test_report_browser.py tests/integration/test_qpidd_process.py tests/integration/test_qpid_ha.py
    tests/integration/test_torture.py
)

# In the namespaces, debootstrap too: it mounts.  The new directory becomes their root, which is more than chroot: tests
# that make namespaces of their own enter them by their root.
inside() {
    root=$1
    shift
    make_machine "$root"
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mapfile -t settings < <(env | grep '^PIP_')
    cd "$root"
    pivot_root . mnt
    cd /
    umount -l /mnt
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${settings[@]}" \
        sh -c 'cd /srv/project && exec make unit PYTEST_OPTIONS="$*"' sh "$@"
}

# Of this machine: where names and packages are found, and which authorities are trusted.
copy_settings() {
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
    fi
    if [ -d "${PIP_FIND_LINKS:-}" ]; then
        mkdir -p "$1$PIP_FIND_LINKS"
        cp -r "$PIP_FIND_LINKS/." "$1$PIP_FIND_LINKS"
    fi
}

make_machine() {
    if [ ! -e "$1/etc/apt" ]; then
        debootstrap --variant=minbase --include=ca-certificates,make "$suite" "$1" "$mirror"
    fi
    copy_settings "$1"
    if [ -e "$1/srv/project" ]; then
        git -C "$1/srv/project" fetch -q "$tree" HEAD
        git -C "$1/srv/project" reset -q --hard FETCH_HEAD
    else
        git clone -q --no-hardlinks "$tree" "$1/srv/project"
    fi
}

if [ "${1:-}" = --inside ]; then
    inside "${@:2}"
fi
[ "$(id -u)" = 0 ] || { echo "This needs root: it mounts, and changes the root directory." >&2; exit 1; }
for program in debootstrap git; do
    command -v $program >/dev/null || { echo "Missing: $program (name of the Debian package)" >&2; exit 1; }
done
[ $# -gt 0 ] || set -- "${tests[@]}"
worker=
finish() {
    [ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null || true
    wait
    [ -n "${PLACE:-}" ] || rm -rf --one-file-system "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
place=${PLACE:-$(mktemp -d /var/tmp/qpidd-fresh-XXXXXX)}
unshare --mount --pid --ipc --fork --kill-child=KILL --propagation private \
    timeout --signal=KILL "$limit" bash "$0" --inside "$place" -rs "$@" &
worker=$!
wait "$worker"
