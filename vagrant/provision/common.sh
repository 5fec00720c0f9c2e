# shellcheck shell=bash
# Read by the other scripts.  What differs between a real machine and a node of the tests' lab comes as environment:
#
#   PROJECT            the tree of the project on this machine                (/vagrant)
#   QPID_RENDERED      what `qpid-cluster render --for vagrant` wrote          ($PROJECT/vagrant/rendered)
#   PROVISION_APT      yes: packages are installed; no: they have to be there  (yes)
#   PROVISION_SYSTEMD  yes: systemd runs the services; no: the script does     (yes if systemd runs here)
#
# All scripts may be run again at any time.
set -eu
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
PROJECT=${PROJECT:-/vagrant}
QPID_RENDERED=${QPID_RENDERED:-$PROJECT/vagrant/rendered}
PROVISION_APT=${PROVISION_APT:-yes}
PROVISION_SYSTEMD=${PROVISION_SYSTEMD:-$([ -d /run/systemd/system ] && echo yes || echo no)}
if [ ! -e "$QPID_RENDERED/cluster.env" ]; then
    echo "No $QPID_RENDERED/cluster.env: please run \`qpid-cluster render CLUSTER.YAML -o DIRECTORY --for vagrant\`." >&2
    exit 1
fi
. "$QPID_RENDERED/cluster.env"

# wait_until SECONDS WHAT COMMAND...: polls; ends the script when it does not come true.
wait_until() {
    limit=$1 what=$2
    shift 2
    until=$(($(date +%s) + limit))
    while ! "$@" >/dev/null 2>&1; do
        if [ "$(date +%s)" -gt "$until" ]; then
            echo "not within $limit s: $what" >&2
            exit 1
        fi
        sleep 0.05
    done
}
