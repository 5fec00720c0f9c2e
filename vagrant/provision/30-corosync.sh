#!/bin/bash
# Corosync's configuration, the nodes' names, and the first CIB of a node that has none.
. "$(dirname "$0")/common.sh"

install -D -m 644 "$QPID_RENDERED/corosync.conf" /etc/corosync/corosync.conf
if [ -e "$QPID_RENDERED/authkey" ]; then
    install -m 400 "$QPID_RENDERED/authkey" /etc/corosync/authkey
elif grep -q '^ *crypto_cipher: [^n]' "$QPID_RENDERED/corosync.conf"; then
    echo "No authkey next to cluster.env: make it there with \`corosync-keygen -k authkey\`, once for all nodes." >&2
    exit 1
fi

[ ! -e "$QPID_RENDERED/sbd" ] || install -m 644 "$QPID_RENDERED/sbd" /etc/default/sbd

# Names without a name server.  Debian gives 127.0.1.1 to a machine's own name; the others must not hear that one.
sed -i "/^127\.0\.1\.1[[:space:]]/d" /etc/hosts
read -ra addresses <<<"$QPID_ADDRESSES"
for name in $QPID_NODES; do
    sed -i "/[[:space:]]$name\$/d" /etc/hosts
    printf '%s\t%s\n' "${addresses[0]}" "$name" >>/etc/hosts
    addresses=("${addresses[@]:1}")
done

# Without it the first election waits for dc-deadtime's default, 20 s.  Any CIB of a running cluster is newer.
cib=/var/lib/pacemaker/cib/cib.xml
if [ ! -e "$cib" ]; then
    cat >"$cib" <<END
<cib crm_feature_set="3.16.1" validate-with="pacemaker-3.9" admin_epoch="0" epoch="1" num_updates="0">
  <configuration>
    <crm_config>
      <cluster_property_set id="cib-bootstrap-options">
        <nvpair id="cib-bootstrap-options-dc-deadtime" name="dc-deadtime" value="2s"/>
      </cluster_property_set>
    </crm_config>
    <nodes/>
    <resources/>
    <constraints/>
  </configuration>
  <status/>
</cib>
END
    chown hacluster:haclient "$cib"
    chmod 600 "$cib"
fi
