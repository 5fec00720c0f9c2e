#!/bin/bash
# What a node of the lab needs before it is provisioned like a real machine.
set -eu
# The machine below may be a cluster's node itself, or have been one; this node is a new one.
for directory in /var/log/corosync /var/log/pacemaker /var/log/qpidd /var/lib/corosync /var/lib/qpidd /etc/corosync \
    /etc/qpid /var/lib/pacemaker/cib /var/lib/pacemaker/pengine; do
    [ ! -d "$directory" ] || find "$directory" -mindepth 1 -delete
done

printf "127.0.0.1\tlocalhost\n::1\tlocalhost\n" >/etc/hosts

# The fence agent of the power unit, and the toy service.
install -m 755 /run/lab/fence_lab /usr/sbin/fence_lab
install -D -m 755 /run/lab/toy /usr/lib/ocf/resource.d/lab/toy

# sbd only as the lab allows it.
if [ -e /run/lab/config/sbd ]; then
    install -D -m 755 /run/lab/harmless /usr/lib/lab/harmless
    install -D -m 755 /run/lab/sbd /usr/local/sbin/sbd # found first; Pacemaker wants to see the other one at its place
fi

# The interpreter may be in a home directory, which is closed to other users.
for tree in $LAB_TREES; do
    while [ "$tree" != / ]; do
        chmod o+x "$tree" 2>/dev/null || true # another file system, laid over the node's
        tree=$(dirname "$tree")
    done
done
