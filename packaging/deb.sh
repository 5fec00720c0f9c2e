#!/bin/bash
# Builds the Debian packages from the tree that `make install` would install; `make deb` calls it.
#
# Settings, from the environment: REVISION (1) of the package; PYTHON, EXTRAS and PIP_* as for install.sh.  Wanted: the packages
# dpkg-dev and debhelper.  The result, dist/*.deb, is for machines with the same minor version of Python.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in dpkg-buildpackage dh; do
    command -v $program >/dev/null || { echo "deb: $program is missing: install dpkg-dev and debhelper" >&2; exit 1; }
done
work=$PWD/build/deb
version=$(sed -n 's/^version = //p' setup.cfg)-${REVISION:-1}
python=${PYTHON:-/usr/bin/python3}

rm -rf "$work"
mkdir -p "$work/source" dist
DESTDIR=$work/tree PREFIX=/usr bash packaging/install.sh install >&2
cp -r packaging/debian "$work/source/debian"
cat >"$work/source/debian/changelog" <<END
qpidd-py ($version) unstable; urgency=medium

  * What has changed is in /usr/share/doc/qpidd/CHANGELOG.md.

 -- The authors of qpidd-py <qpidd-py@example.org>  $(LC_ALL=C date -R -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y CHANGELOG.md)}")
END
minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=${minor%.*}.$((${minor#*.} + 1))
(cd "$work/source" && TREE=$work/tree CLIENT_MODULE=$PWD/../../../packaging/client/qpidd_client.py PYTHONS="python3 (>= $minor), python3 (<< $next)" dpkg-buildpackage -b -us -uc >&2)
mv "$work"/*.deb dist
ls dist/*_"$version"_*.deb
