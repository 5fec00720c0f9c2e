#!/bin/sh
# What an unpacked installation needs on the machine itself: the user qpidd, its directories, owners of files.  As root;
# may be run again at any time, and should be after Pacemaker was installed: its group haclient is what lets a broker
# with ha-registry=pacemaker write node attributes.
set -eu
prefix=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")

if ! getent passwd qpidd >/dev/null; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers "$prefix/lib/sysusers.d/qpidd.conf"
    else
        getent group qpidd >/dev/null || groupadd --system qpidd
        useradd --system --gid qpidd --home-dir /var/lib/qpidd --shell /usr/sbin/nologin --comment "AMQP broker" qpidd
    fi
fi
if getent group haclient >/dev/null && ! id -nG qpidd | grep -qw haclient; then
    usermod -a -G haclient qpidd
fi

# The same as tmpfiles.d says; here for machines without systemd.
for directory in /run/qpidd /var/lib/qpidd /var/log/qpidd; do
    install -d -m 0750 -o qpidd -g qpidd "$directory"
done
# It may hold ha-password.
if [ -e /etc/qpid/qpidd.conf ]; then
    chown root:qpidd /etc/qpid/qpidd.conf
    chmod 0640 /etc/qpid/qpidd.conf
fi

if ! "$prefix/lib/qpidd/bin/python" -I -c 'import ha.plugin, qpidd_py.service' 2>/dev/null; then
    echo "post-install: $prefix/lib/qpidd does not run here. It was built for $(sed -n 's/^version = //p' \
        "$prefix/lib/qpidd/pyvenv.cfg" | cut -d. -f1-2) in $(sed -n 's/^home = //p' "$prefix/lib/qpidd/pyvenv.cfg")." >&2
    exit 1
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
