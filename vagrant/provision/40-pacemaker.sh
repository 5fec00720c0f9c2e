#!/bin/bash
# Starts the node's cluster stack; without systemd this is also what every boot runs.
. "$(dirname "$0")/common.sh"

# It has no vote before there are certificates (README.md of the rendered files), and nothing waits for it.
quorum_device() {
    if grep -q '^ *device {' /etc/corosync/corosync.conf; then
        "$@" || echo "no quorum device: corosync-qdevice does not start" >&2
    fi
}

# A watchdog's settings are Pacemaker's, too; the unit of sbd starts and ends with Corosync.
with_sbd() {
    [ -e "$QPID_RENDERED/sbd" ]
}

if [ "$PROVISION_SYSTEMD" = yes ]; then
    ! with_sbd || systemctl enable sbd
    systemctl enable corosync pacemaker
    systemctl restart corosync
    quorum_device systemctl enable --now corosync-qdevice
    systemctl restart pacemaker
else
    install -d -m 750 -o qpidd -g qpidd /run/qpidd || true # as tmpfiles.d does; there is no broker in a lab of toys
    export PCMK_logfile=/var/log/pacemaker/pacemaker.log PCMK_logfacility=none HA_LOGFACILITY=none
    pgrep -x corosync >/dev/null || corosync
    # pacemakerd looks for Corosync once a second only, so it is started when Corosync answers.
    wait_until 30 "Corosync answers" corosync-cmapctl -g totem.cluster_name
    pgrep -f ^corosync-qdevice >/dev/null || quorum_device corosync-qdevice
    if with_sbd; then
        set -a
        . /etc/default/sbd
        set +a
        pgrep -x sbd >/dev/null || sbd -p /run/sbd.pid watch
    fi
    if ! pgrep -x pacemakerd >/dev/null; then
        setsid pacemakerd </dev/null >/dev/null 2>&1 &
    fi
fi
