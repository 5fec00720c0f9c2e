#!/bin/bash
# Brings the resources into the running cluster; on one node, after all others are up.
#
#   CIB       the configuration; `<cib>` or `<configuration>`   ($QPID_RENDERED/cib.xml)
#   WAIT_FOR  names of the nodes that must be members before     ($QPID_NODES)
. "$(dirname "$0")/common.sh"
WAIT_FOR=${WAIT_FOR-$QPID_NODES}
CIB=${CIB:-$QPID_RENDERED/cib.xml}

online() {
    for name in $WAIT_FOR; do
        crm_mon -1 --output-as=xml | grep "<node name=\"$name\"" | grep -q 'online="true".*pending="false"' || return 1
    done
}
# Machines come up in parallel under libvirt, and each compiles.
wait_until 600 "all of these are members: $WAIT_FOR" online

# Only what is below <configuration>, and as a change: the list of nodes and the state are the cluster's own.
cibadmin --modify --allow-create --scope configuration --xml-file "$CIB"

# The same option under two ids: Pacemaker would take the first one, which may be the old one.
twice=$(cibadmin --query --scope crm_config | grep -o ' name="[^"]*"' | sort | uniq -d)
if [ -n "$twice" ]; then
    echo "set twice in crm_config:$twice" >&2
    exit 1
fi
