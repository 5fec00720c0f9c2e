#!/bin/bash
# The broker, its agents and tools, and its configuration.
#
#   QPIDD_PACKAGE  what `make package` made; none: nothing of ours is installed   (the newest in $PROJECT/dist)
. "$(dirname "$0")/common.sh"

newest_package() {
    find "$PROJECT/dist" -name "qpidd-*-$(uname -m).tar.gz" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -1 | cut -d' ' -f2-
}

QPIDD_PACKAGE=${QPIDD_PACKAGE:-$(newest_package)}
if [ -z "$QPIDD_PACKAGE" ]; then
    make -C "$PROJECT" package
    QPIDD_PACKAGE=$(newest_package)
fi
if [ "$QPIDD_PACKAGE" != none ]; then
    tar -C / --no-same-owner -xzf "$QPIDD_PACKAGE"
    conf=$QPID_RENDERED/qpidd-$(hostname).conf # a node with options of its own
    [ -e "$conf" ] || conf=$QPID_RENDERED/qpidd.conf
    install -m 640 "$conf" /etc/qpid/qpidd.conf
    /usr/share/qpidd/post-install
    # Who may log in; without it no user from another machine.
    users=$QPID_RENDERED/users.yaml
    if [ -e "$users" ]; then
        install -m 600 -o qpidd -g qpidd "$users" /etc/qpid/users.yaml
    elif grep -q '^user-file=/etc/qpid/users.yaml$' "$conf"; then
        echo "No users.yaml next to cluster.env: make it there with \`qpid-passwd add users.yaml app\`." >&2
        exit 1
    fi
    if [ "$PROVISION_SYSTEMD" = yes ]; then
        # The broker is Pacemaker's to start.
        systemctl disable --now qpidd.service
    fi
fi
