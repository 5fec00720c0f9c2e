#!/bin/bash
# Corosync, Pacemaker, the stock resource agents, and what the broker needs.
. "$(dirname "$0")/common.sh"

if [ "$PROVISION_APT" = yes ]; then
    export DEBIAN_FRONTEND=noninteractive
    # Debian starts what it installs; Corosync without a configuration of ours would be a cluster of its own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends \
        pacemaker pacemaker-cli-utils corosync resource-agents fence-agents iproute2 \
        python3 python3-venv python3-dev gcc libc6-dev make >/dev/null
    if [ -e "$QPID_RENDERED/sbd" ]; then
        apt-get install -y -qq --no-install-recommends sbd >/dev/null
        modprobe softdog
        echo softdog >/etc/modules-load.d/softdog.conf
    fi
fi
command -v corosync pacemakerd cibadmin ip >/dev/null
