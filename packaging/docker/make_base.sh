#!/bin/bash
# A base image from Debian's packages, for engines that reach no image registry; as root, with debootstrap.
#
#     packaging/docker/make_base.sh NAME [CERTIFICATES]
#
# About a minute. CERTIFICATES: a PEM bundle to trust instead of Debian's, where a proxy stands between.
set -euo pipefail
name=${1:?name of the image, such as qpidd-base:bookworm}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

debootstrap --variant=minbase --include=ca-certificates,python3 bookworm "$directory/root" >"$directory/log" ||
    { tail -5 "$directory/log" >&2 && exit 1; }
rm -rf "$directory"/root/var/cache/apt/archives/*.deb "$directory"/root/var/lib/apt/lists/*
if [ -n "${2:-}" ]; then
    cp "$2" "$directory/root/etc/ssl/certs/ca-certificates.crt"
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$directory/root/etc/pip.conf"
fi
tar -C "$directory/root" -c . | docker import - "$name"
