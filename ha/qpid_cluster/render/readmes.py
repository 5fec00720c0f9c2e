"""The README.md of each kind: what goes where, in which order, and what to do afterwards."""
# ruff: noqa: E501 (a row of a Markdown table has no line breaks)

from string import Template

PACEMAKER = Template("""\
# Cluster $cluster under Pacemaker

Written by `qpid-cluster render`: $nodes.
$summary

| file | goes to |
|---|---|
| `corosync.conf` | `/etc/corosync/corosync.conf` on every node |
| `hosts` | lines for `/etc/hosts` on every node |
| `qpidd-NODE.conf` | `/etc/qpid/qpidd.conf` on that node; owner root, group qpidd, mode 0640: there is a password in it |
$users| `cib.xml`, `cluster.pcs.sh`, `cluster.crmsh` | the same configuration three times; load *one* of them, on one node, once |

## Steps

On every node, as root:

1. `apt-get install pacemaker corosync resource-agents pacemaker-cli-utils$packages` (the names are Debian's; pcs or crmsh if you
   like), then the package of qpidd. Its user `qpidd` must be in the group `haclient`: run `/usr/share/qpidd/post-install` once more if Pacemaker came last.
2. Put the files where the table says. No unit starts qpidd: `systemctl disable --now qpidd`. Pacemaker does it.
3. Corosync's key: `corosync-keygen` on one node, then copy `/etc/corosync/authkey` to the others (owner root, mode 0400). Corosync does not start
   without it, and nodes with different keys do not see each other.
4. `corosync -t`, then `systemctl enable --now corosync pacemaker`. `crm_mon -1` shows all nodes online after some seconds.
$quorum_device$sbd
On one node:

5. `cibadmin --modify --allow-create --scope configuration --xml-file cib.xml`, or `sh cluster.pcs.sh`, or `crm configure load update cluster.crmsh`.
6. `crm_verify -LV` finds nothing, `crm_mon -1rfA` shows one promoted broker and its score on every node. `qpid-ha status --all` agrees.
$fence_test
**Never replace the whole configuration** (`cibadmin --replace` without `--scope` refuses cib.xml for that reason): its part `nodes` holds the
registry of `ha-registry=pacemaker`. Replace single parts, `cibadmin --replace --scope resources --xml-file cib.xml`, or use pcs or crmsh. Step 5
changes and adds, and may be repeated; what is no longer in the file stays.

## Afterwards

| what | how |
|---|---|
| who is primary | `crm_mon -1r`, `qpid-ha status --all` |
| planned switch-over | `crm_resource --move --resource qpidd-clone --promoted --node NODE`, then `crm_resource --clear --resource qpidd-clone`; not `qpid-ha relocate`, which Pacemaker takes for a failure |
| maintenance of a node | `crm_standby --update on --node NODE` (its broker stops and forgets its messages), `crm_standby --delete --node NODE` |
| forget failures | `crm_resource --cleanup --resource qpidd` |
| an option of the brokers | change `/etc/qpid/qpidd.conf` on every node, `kill -HUP $$(head -n 1 /var/lib/qpidd/lock)` there; the log names what waits for a restart |
| a parameter of the resource | `crm_resource --resource qpidd --set-parameter heartbeat --parameter-value 2s`, pcs or crmsh; no broker is restarted. Every node logs `reads its configuration`, or why the change is refused (`pacemaker.log`) |
| what has happened | `failover-report` with `/var/log/pacemaker` (also `qpid-alerts.jsonl`, written by an alert of Pacemaker), `/var/log/corosync` and `/var/lib/qpidd/events` of all nodes |
| why is no broker promoted | `crm_mon -1A` (scores), `qpid-ha status --all -v` |

What waits for a restart, and a new version: `qpid-cluster rolling-restart --manager pacemaker` on one node, when all nodes are changed. Each
broker is back in sync before the next one stops, and the role moves before the primary does. **Never `crm_resource --restart`, or disable and
enable the clone**: all brokers then stop together, and without journals all messages are gone.

One node at a time: a broker that was stopped copies what its journal lacks. Wait for `ready` before the next one.

## Why the settings are as they are

Corosync: token $token ms, consensus $consensus ms. A dead node is noticed after the token, the others agree within the consensus,
then comes fencing, then the promotion. A token of 500 ms saves a second of it, on a quiet network. With three nodes or more `token_coefficient: 0` keeps Corosync from adding 650 ms for each node beyond two.

$reasons
""")

FENCE_TEST = """\
7. Test fencing before you trust it: `stonith_admin --reboot NODE` for each node in turn.
"""

SBD_ROW = """\
| `sbd` | `/etc/default/sbd` on every node (`/etc/sysconfig/sbd` where packages are RPMs) |
"""

SBD = Template("""
sbd needs a watchdog in every node, and needs it for itself. Before step 4: `sbd query-watchdog` finds $device and names its driver; a machine without
one, such as most virtual ones, gets the kernel's with `modprobe softdog` and `echo softdog >/etc/modules-load.d/softdog.conf`, which is weaker: it does not
help where the kernel itself stands still. `fuser -v $device` names nobody: remove the package `watchdog`, and `RuntimeWatchdogSec=` in
`/etc/systemd/system.conf`. Then `systemctl enable sbd`; it starts and ends with Corosync (`systemctl restart corosync` where that runs already), never by
hand, and lets Pacemaker wait for SBD_DELAY_START, $delay s. On a node where sbd does not come up neither does Pacemaker; `systemctl status sbd` tells why.
Afterwards `pgrep -c sbd` counts 3, and `crm_attribute --query --name have-watchdog` says true.
""")

SBD_TEST = Template("""\
7. Test the watchdogs before you trust them: pull the network cable of each node in turn. It restarts by itself within $seconds s, and one of the others is
   promoted after that time. A node that does not restart has no working watchdog: what it runs when it is lost is then not ended.
""")

QUORUM_DEVICE = Template("""
On $host, which must be none of the nodes and should reach both by another network than they reach each other, `apt-get install corosync-qnetd`.
On one node, which can log in to $host and all nodes by ssh as root: `corosync-qdevice-net-certutil -Q -n $cluster $host $nodes`. On every node
`systemctl enable --now corosync-qdevice`. `corosync-quorumtool` then shows the flag Qdevice and one vote more than there are nodes; `corosync-qnetd-tool -l`
on $host lists the nodes. While $host is down the cluster goes on as long as no node is lost.
""")

RGMANAGER = Template("""\
# Cluster $cluster under rgmanager

Written by `qpid-cluster render`: $nodes. rgmanager and cman belong to RHEL 6 and its kin; elsewhere use Pacemaker.

| file | goes to |
|---|---|
| `cluster.conf` | `/etc/cluster/cluster.conf` on every node |
| `sysconfig-qpidd` | `/etc/sysconfig/qpidd` on every node |
| `qpidd-NODE.conf` | `/etc/qpid/qpidd.conf` on that node; owner root, group qpidd, mode 0640: there is a password in it |
$users
1. Install the package of qpidd on every node; put the files where the table says. `chkconfig qpidd off`, `chkconfig qpidd-primary off`:
   rgmanager starts both scripts.
2. `ccs_config_validate`, then start cman and rgmanager on all nodes.
3. `clustat` shows a started service for each node and `qpidd-primary-service` on one of them. `qpid-ha status --all` agrees.

| what | how |
|---|---|
| planned switch-over | `qpid-ha relocate --to NODE` (0.1 s for clients that know all addresses; the service and its address follow at the next poll), or `clusvcadm -r qpidd-primary-service -m NODE` (0.3 s; the former primary's broker stops, and comes back as backup) |
| change an option | `/etc/qpid/qpidd.conf` on every node, `kill -HUP $$(head -n 1 /var/lib/qpidd/lock)` there; the log names what waits for a restart |
| what waits for a restart, a new version | `qpid-cluster rolling-restart --manager rgmanager` on one node: one broker at a time, the primary last |
| stop the last primary | `clusvcadm -d qpidd-primary-service` may take 10 s: while another member is catching up, the broker waits for it |
| stop a backup's node | `clusvcadm -d NODE-qpidd-service` |
| stop the primary's node | `clusvcadm -d NODE-qpidd-service` *and* `clusvcadm -r qpidd-primary-service`; either alone leaves the process running |

The reason for each setting is in a comment next to it.
""")

SYSTEMD = Template("""\
# Cluster $cluster under systemd, promoted by hand

Written by `qpid-cluster render`: $nodes. systemd starts the brokers again; only you promote. $safety

| file | goes to |
|---|---|
| `qpidd-NODE.conf` | `/etc/qpid/qpidd.conf` on that node; owner root, group qpidd, mode 0640: there is a password in it |
$users| `qpidd.service.d/cluster.conf` | `/etc/systemd/system/qpidd.service.d/cluster.conf` on every node |

1. On every node: install the package, put the files there, `systemctl daemon-reload`, `systemctl enable --now qpidd`. `systemctl status qpidd`
   shows the state `joining`.
2. On one node: `qpid-ha promote --cluster-manager` (or `systemctl start qpidd-primary`). `qpid-ha status --all` shows one `active`, the others `ready`.

| what | how |
|---|---|
| the primary has died | `qpid-ha status --all -v` on another node, then `qpid-ha promote --cluster-manager` on one that is `ready`; a wrong choice is refused |
| planned switch-over | `qpid-ha relocate --to NODE` |
| change an option | `/etc/qpid/qpidd.conf` on every node, `systemctl reload qpidd`; the log names what waits for a restart (one node at a time, as below) |
| stop a node | `qpid-ha relocate` if it is the primary, then `systemctl stop qpidd`; wait for `ready` before the next one |

Clients connect to a list of all addresses: `$url`. No address moves with the primary; a backup refuses clients and names the primary.
""")

SYSTEMD_SAFETY = {
    "quorum": "Safety: quorum. No broker is promoted without a majority of the brokers, so a promotion by mistake loses nothing.",
    "manager": "Safety: manager. That is you: before you promote, make sure that the former primary is dead, or reachable.",
    "availability": "Safety: availability. A promotion by mistake loses messages.",
}

COMPOSE = Template("""\
# Cluster $cluster in containers

Written by `qpid-cluster render`. The image is `$image` (`docker build -f packaging/docker/Dockerfile -t qpidd-py .` in the project).

`compose.yaml`: a container for each broker ($nodes), in one network, promoted by hand:

$users    docker compose up --detach --wait
    docker compose exec $first qpid-ha promote --cluster-manager
    docker compose exec $first qpid-ha status --all          # one active, the others ready

    docker compose kill $first                               # the primary dies
    docker compose exec $second qpid-ha promote --cluster-manager
    docker compose start $first                              # it joins again, and copies what it misses

    docker compose exec $second qpid-ha relocate --to $first:$port   # planned

Clients log in as `app`. Those on this machine use `$published`, those in the network `qpid` `$url`.
An option is changed in `compose.yaml`, then `docker compose up --detach --no-deps BROKER` makes one container anew: a backup first, wait until it is
ready, then the next; the primary last, after `qpid-ha relocate`. A plain `docker compose up` would replace all of them at once.
A volume for each broker keeps its vote; `docker compose down --volumes` makes it forget it, which is only right for all of them at once. $safety

`one-container/compose.yaml`: all brokers in one container with `qpid-cluster` as manager, which promotes by itself; it reads
`cluster.yaml` in the same folder and uses the host's network. (`cd one-container` first: Compose takes the directory's name for the project's.)
""")

COMPOSE_USERS = """\
    qpid-passwd add users.yaml app                           # if there is none: render writes it and prints the password of `app`
    chmod 644 users.yaml                                     # the image's user reads it; it holds hashes only

"""

COMPOSE_SAFETY = {
    "quorum": "Safety is `quorum`: no broker is promoted without a majority, and a promotion by mistake loses nothing.",
    "manager": "Safety is `manager`, and that is you: before you promote, make sure that the former primary is dead, or reachable.",
    "availability": "Safety is `availability`: a promotion by mistake loses messages.",
}
