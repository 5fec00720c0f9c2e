#!/bin/sh
# The configuration of cluster qpid as pcs commands, the same as cib.xml. Written by qpid-cluster render.
#
#     sh cluster.pcs.sh           adds it to the running cluster, in one step; run it on one node, once
#     sh cluster.pcs.sh FILE      puts it into FILE, a CIB, and changes nothing else
#
# Corosync by pcs instead of with corosync.conf (then do not copy that file); pcs makes the key for encryption, too:
#
#     pcs host auth node1 addr=192.0.2.11 node2 addr=192.0.2.12 node3 addr=192.0.2.13
#     pcs cluster setup qpid node1 addr=192.0.2.11 node2 addr=192.0.2.12 node3 addr=192.0.2.13 \
#         transport knet totem token=1000 token_coefficient=0 consensus=1200
#     pcs cluster start --all --wait=60
set -eu

file=${1:-}
if [ -z "$file" ]; then
    directory=$(mktemp -d)
    trap 'rm -rf "$directory"' EXIT
    file=$directory/cib.xml
    pcs cluster cib "$file"
    cp "$file" "$directory/before.xml"
fi
run() { pcs -f "$file" "$@"; }

# stonith-enabled: Fencing by sbd: a node without a majority is reset by its own watchdog.
# stonith-watchdog-timeout: A lost node is taken for reset after this time: no broker is promoted, and no address
# moves, before. sbd notices within a few seconds that its node has no majority, and the watchdog needs 5 s more.
# Pacemaker does not start on a node where sbd does not run, or where SBD_WATCHDOG_TIMEOUT is not less.
# no-quorum-policy: The side without a majority demotes its broker and takes the address away at once; some seconds
# later its nodes are reset by sbd. A switch that fails therefore resets all nodes, and the journals keep the
# messages.
# dc-deadtime: How long the first node waits for the others after a start of the whole cluster; the default is 20 s.
# With fencing a node that has not come up by then is switched off and on once more.
# load-threshold: No throttling. By default Pacemaker runs fewer actions at a time on a node that is busy, down to a
# single one on a small machine with a load of twice its cores: a fail-over then takes seconds longer.
# transition-delay: When a node is lost, the scheduler is asked while the controller's own updates for that node are
# pending; Pacemaker then sleeps a whole second before it asks again (8 of 12 times were measured). With this delay
# the updates are there first (0 of 18).
# cluster-recheck-interval: A safety net only: failure-timeout has its own timer since Pacemaker 2.0, and everything
# else is reported.
run property set \
    stonith-enabled=true \
    stonith-watchdog-timeout=12s \
    no-quorum-policy=demote \
    dc-deadtime=20s \
    load-threshold=0% \
    cluster-recheck-interval=60s
run property set --force transition-delay=50ms

# resource-stickiness: Nothing moves without need. Not more: which broker is promoted is decided by promotion scores
# that differ by 5 or more, and the primary has none above a ready backup's; Pacemaker leaves it where it is when
# they are equal.
# failure-timeout: A fence device or an address that failed is tried again by itself.
run resource defaults update resource-stickiness=1 failure-timeout=60s 2>/dev/null

# Waits until a lost node was reset by its own watchdog. The id is fixed: Pacemaker knows it.
run stonith create --no-default-ops watchdog fence_watchdog 'pcmk_host_list=node1 node2 node3' \
    op start interval=0s timeout=60s \
    op monitor interval=60s timeout=60s

# The broker, on every node.
# config: Port, data directory and login come from there, too.
# failure-timeout: A broker that could not be started is tried again after that time (a failed start is fatal until
# then).
# migration-threshold: The default, on purpose. With 1 a broker that loses its role or refuses a promotion would be
# stopped, and its copy of the messages with it. on-fail=demote below does what the threshold is usually set for: it
# promotes another one before the failed one is started again.
# start: start returns when the broker answers, as backup (0.5 s as a rule). The times allowed are generous: a broker
# that exceeds one is killed, with everything in its memory. A failed stop fences the node, where there is fencing.
# promote: A broker that refuses (others hold more, or too few answer) goes on as backup, and another one is tried.
# The default, `restart`, would empty its memory.
# demote: In place: the broker goes on as backup and keeps what it has.
# monitor Promoted: The agent holds a recurring monitor: it watches the process and its signs of life, and returns at
# once when something is wrong, else after half of its timeout. So a death is known within milliseconds; the interval
# is only the gap between two watches. on-fail=demote: a dead primary is demoted (which costs nothing), another one
# is promoted, and then the dead one is started again; with the default, `restart`, its start comes before the
# promotion. A live one that has lost its role is repaired without being stopped. The death of a primary is reported
# by the other monitor, since the demotion ends this one.
# monitor Unpromoted: Held, too, for backups; two monitors must differ in interval. Failures of primaries are counted
# here, with the reason `the primary has failed`.
run resource create --no-default-ops qpidd ocf:qpid:qpidd config=/etc/qpid/qpidd.conf \
    op start interval=0s timeout=60s \
    op stop interval=0s timeout=60s \
    op promote interval=0s timeout=30s on-fail=demote \
    op demote interval=0s timeout=30s \
    op monitor interval=200ms timeout=20s role=Promoted on-fail=demote \
    meta failure-timeout=10s migration-threshold=INFINITY
run resource op add qpidd monitor interval=300ms timeout=20s role=Unpromoted

# promotable: One of the instances is promoted ...
# promoted-max: ... and only one.
# interleave: What depends on the clone waits for the instance of its own node, not for all.
# notify: Notifications cost a round of calls on all nodes before and after each promotion.
run resource promotable qpidd qpidd-clone meta promoted-max=1 interleave=true notify=false

# The address that clients connect to. ocf:heartbeat:IPaddr2 does the same, more slowly.
# nic: The interface that has it.
# resource-stickiness: It has no opinion of its own: else it would weigh on who is promoted.
# monitor: Somebody may have taken it away by hand; the broker has its own monitor.
run resource create --no-default-ops vip ocf:qpid:vip ip=192.0.2.10 cidr_netmask=24 nic=eth0 \
    op start interval=0s timeout=20s \
    op stop interval=0s timeout=20s \
    op monitor interval=5s timeout=20s \
    meta resource-stickiness=0

# The address is where the promoted broker is. No order: it comes up while the broker is being promoted (a backup
# refuses a client at once, and the client tries again; a packet to an address that is nowhere is lost, and is
# repeated only after a second), and it goes while the old one is being demoted. That saves 0.1 to 0.3 s of outage.
run constraint colocation add Started vip with Promoted qpidd-clone INFINITY id=vip-with-promoted

# Failed and moved resources, lost nodes and fencing are appended to /var/log/pacemaker/qpid-alerts.jsonl on every
# node, for failover-report. Alerts run beside the cluster's work; one that hangs is ended after its timeout, and
# nothing waits for it.
run alert create path=/usr/share/qpidd/pacemaker-alert id=qpid-events meta timeout=5s
run alert recipient add qpid-events value=/var/log/pacemaker/qpid-alerts.jsonl id=qpid-events-recipient-1

if [ -z "${1:-}" ]; then
    pcs cluster cib-push "$file" diff-against="$directory/before.xml"
fi
