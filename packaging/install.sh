#!/bin/bash
# Installs, packs or removes the broker; `make install`, `make stage`, `make package` and `make uninstall` call it.
#
#     packaging/install.sh install | package | uninstall | files
#
# Settings, from the environment (or the command line of make):
#   DESTDIR   put before every path of the installation, for packages and images; default nothing
#   PREFIX    /usr (default) or /usr/local
#   PYTHON    the interpreter that the installed programs run with: 3.11 or newer, with venv and header files;
#             default /usr/bin/python3.  Its path is written into the installation.
#   EXTRAS    of setup.cfg, default client; client,spark: what failover-report computes reports with comes along
# What pip is to do (index, certificates, no network) is told to it in the usual way, by PIP_* or pip.conf.
#
# The programs live in a private virtual environment, PREFIX/lib/qpidd, with what they need and no tool for
# development.  It is built once under build/install and copied from there; a changed Python file costs seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

destdir=${DESTDIR:-}
prefix=${PREFIX:-/usr}
python=${PYTHON:-/usr/bin/python3}
ocf_root=/usr/lib/ocf # Pacemaker looks nowhere else
work=$PWD/build/install
venv=$work/tree$prefix/lib/qpidd
extras=${EXTRAS:-client}
programs=(qpidd qpidd-journal qpid-passwd qpid-ha qpid-cluster qpid-config qpid-stat qpidctl qpid-http qpid-route qpid-shovel qpid-metrics qpid-printevents qpid-send qpid-receive failover-report)
# Not as pip writes them: its own differ from version to version, and some import what costs time at each start.
# -I: nothing in the environment or the current directory may put itself before our modules.
read -r -d '' write_programs <<'END' || true
import sys
from importlib.metadata import distribution
from pathlib import Path

interpreter, *wanted = sys.argv[1:]
points = {point.name: point for point in distribution("qpidd-py").entry_points if point.group == "console_scripts"}
for name in wanted:
    file = Path(sys.executable).with_name(name)
    file.write_text(f"#!{interpreter} -I\nimport sys\n\nfrom {points[name].module} import {points[name].attr}\n\n"
                    f"sys.exit({points[name].attr}())\n")
    file.chmod(0o755)
END

main() {
    case ${1:-install} in
    install)
        build_once
        install_all "$destdir"
        finish
        ;;
    package)
        build_once
        package
        ;;
    uninstall) uninstall ;;
    files) list_files "${destdir:-/}" ;;
    *) sed -n '2,5p' "$0" >&2 && exit 2 ;;
    esac
}

# ---- the virtual environment ------------------------------------------------------------------------------------

# Two at once (tests and a person) would build into each other's files.
build_once() {
    mkdir -p "$work"
    exec 9>"$work/lock"
    flock 9
    bash tools/need_system_packages.sh "$python" 9>&-
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than 3.11"
    build_venv 9>&-
}

# Three grounds to build anew: another compiler's work (of tests, without optimization), other packages to bring along, other Python files.
build_venv() {
    local core ground code
    core=$(fingerprint_of setup.py pyproject.toml; "$python" -VV; echo "${QPIDD_OPTIMIZE:-}")
    ground=$core$(fingerprint_of setup.cfg packaging/install.sh; echo "$python $prefix $extras")
    code=$ground$(fingerprint_of qpidd_py ha client_lib spark_jobs README.md)
    if ! is core "$core"; then
        rm -rf "$work/core" "$work/source" "$work/tools"
        new_tools
        echo "$core" >"$work/core"
    fi
    if ! is ground "$ground"; then
        rm -rf "$work/ground" "$work/code" "$work/tree"
        new_venv
        install_python # with what it needs
        echo "$ground" >"$work/ground"
    elif ! is code "$code"; then
        rm -f "$work/code"
        install_python --force-reinstall --no-deps
    fi
    echo "$code" >"$work/code"
}

is() { # NAME VALUE; as it was when that was built
    [ "$(cat "$work/$1" 2>/dev/null)" = "$2" ]
}

# Content, not time: a fresh checkout of the same files is nothing new.
fingerprint_of() {
    find "$@" -type f ! -path '*/__pycache__/*' ! -name '*.so' ! -path 'qpidd_py/core/*.c' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
}

new_tools() {
    "$python" -m venv "$work/tools"
    "$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
        >"$work/tools/requirements"
    "$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$work/tools/requirements"
}

new_venv() {
    "$python" -m venv --without-pip "$venv"
    # What would lead back to the place where it was built, and what only a person in a shell wants.
    sed -i '/^command *=/d' "$venv/pyvenv.cfg"
    rm -rf "$venv"/bin/activate* "$venv"/bin/Activate* "$venv/include"
}

install_python() {
    local wheels=$work/wheels
    local pip=("$work/tools/bin/python" -m pip --disable-pip-version-check)
    copy_source
    rm -rf "$wheels"
    "${pip[@]}" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$wheels" "$work/source"
    "${pip[@]}" --python "$venv/bin/python" install --quiet --no-compile "$@" "$(echo "$wheels"/qpidd_py-*.whl)[$extras]"
    find "$venv" -name direct_url.json -delete
    "$venv/bin/python" -I - "$prefix/lib/qpidd/bin/python" "${programs[@]}" <<<"$write_programs"
    compiled "$venv/bin/python" "$work/tree" "$venv"
}

# The users that run the programs may not write here, and compiling at each start would cost half a second.  Unchecked: the times
# of files do not survive everything that carries them (images, overlays), and would make the work void.
compiled() { # PYTHON ROOT DIRECTORY
    "$1" -m compileall -q -j 0 -s "$2" -p / --invalidation-mode unchecked-hash "$3"
}

# The compiled core stays, so that only what has changed is compiled; Python files that are gone do not.
copy_source() {
    local source=$work/source
    mkdir -p "$source"
    find "$source" -name '*.py' -delete
    rm -rf "$source"/build/bdist* "$source"/*.egg-info
    tar -c --exclude='*.so' --exclude='core/*.c' --exclude=__pycache__ \
        setup.py setup.cfg pyproject.toml MANIFEST.in README.md qpidd_py ha client_lib spark_jobs | tar -x -C "$source"
}

# ---- the files ----------------------------------------------------------------------------------------------------

install_all() {
    local root=$1 program
    swap_in "$root$prefix/lib/qpidd"
    mkdir -p "$root$prefix/bin"
    for program in "${programs[@]}"; do
        ln -sfn "../lib/qpidd/bin/$program" "$root$prefix/bin/$program"
    done
    install_agents "$root"
    install_system "$root"
    install_documents "$root"
    if [ ! -e "$root/etc/qpid/qpidd.conf" ]; then # an administrator's file is left alone
        put 0640 packaging/qpidd.conf "$root/etc/qpid/qpidd.conf"
    fi
}

# A broker that runs from the old tree keeps its open files; no process sees half a tree.
swap_in() {
    local place=$1
    rm -rf "$place.new" "$place.old"
    mkdir -p "$(dirname "$place")"
    cp -a --no-preserve=ownership "$venv" "$place.new"
    if [ -e "$place" ]; then mv -T "$place" "$place.old"; fi
    mv -T "$place.new" "$place"
    rm -rf "$place.old"
}

# The OCF agent is a script and the package that it imports; compiled here, since a monitor has no time to do that.  Monitors
# run all the time, and a failed one restarts a broker: each finds whole files, and keeps its own until the next installation.
install_agents() {
    local root=$1 library=$1$ocf_root/lib/qpid name before file
    name=agent-$({ fingerprint_of resource_agents/ocf/qpidd_agent; "$python" -VV; } | sha256sum | cut -c 1-12)
    before=$(readlink "$library/agent" || echo qpidd_agent) # before there was a link
    [ -d "$library/$name" ] || new_agent "$root" "$library/.new" "$library/$name"
    ln -sfn "$name" "$library/.link"
    mv -T "$library/.link" "$library/agent"
    for file in qpidd vip; do
        put_whole 0755 "resource_agents/ocf/$file" "$root$ocf_root/resource.d/qpid/$file"
    done
    for file in "$library"/*; do
        case ${file##*/} in agent | "$name" | "$before") ;; *) rm -rf "$file" ;; esac
    done
    for file in qpidd qpidd-primary; do
        put_whole 0755 "resource_agents/rgmanager/$file" "$root/etc/init.d/$file"
    done
}

new_agent() { # ROOT DRAFT PLACE
    local file
    rm -rf "$2"
    while read -r file; do
        put 0644 "$file" "$2/${file#resource_agents/ocf/}"
    done < <(find resource_agents/ocf/qpidd_agent -name '*.py' | LC_ALL=C sort)
    compiled "$python" "$1" "$2"
    mv -T "$2" "$3"
}

install_system() {
    local root=$1 units=$1$prefix/lib/systemd/system file
    for file in packaging/systemd/*.service; do
        put 0644 "$file" "$units/$(basename "$file")"
        sed -i -E "s%/usr/(bin|share)/%$prefix/\1/%g" "$units/$(basename "$file")"
        touch -r "$file" "$units/$(basename "$file")"
    done
    put 0644 packaging/sysusers.conf "$root$prefix/lib/sysusers.d/qpidd.conf"
    put 0644 packaging/tmpfiles.conf "$root$prefix/lib/tmpfiles.d/qpidd.conf"
    put 0644 packaging/logrotate.conf "$root/etc/logrotate.d/qpidd"
    put_whole 0755 resource_agents/alert/qpid-alert "$root$prefix/share/qpidd/pacemaker-alert"
    put 0755 packaging/post-install.sh "$root$prefix/share/qpidd/post-install"
    for file in "${programs[@]}"; do
        put 0644 "packaging/completion/bash/$file" "$root$prefix/share/bash-completion/completions/$file"
        put 0644 "packaging/completion/zsh/_$file" "$root$prefix/share/zsh/vendor-completions/_$file"
    done
}

install_documents() {
    local root=$1 documents=$1$prefix/share/doc/qpidd file
    rm -rf "$documents"
    for file in packaging/man/*; do
        put 0644 "$file" "$root$(man_page "$file")"
    done
    for file in README.md CHANGELOG.md; do
        put 0644 "$file" "$documents/$file"
    done
    while read -r file; do
        put 0644 "$file" "$documents/$file"
    done < <(find docs -name '*.md' | LC_ALL=C sort)
    put 0644 ha/README.md "$documents/ha.md"
    put 0644 spark_jobs/README.md "$documents/failover-report.md"
    while read -r file; do
        put "$([ -x "$file" ] && echo 0755 || echo 0644)" "$file" "$documents/examples/${file#config/}"
    done < <(find config -type f | LC_ALL=C sort)
}

man_page() { # FILE; where it belongs: qpidd.8 into man8
    echo "$prefix/share/man/man${1##*.}/$(basename "$1")"
}

put() { # MODE FROM TO; with the time of the original
    install -D -p -m "$1" "$2" "$3"
}

put_whole() { # as put, in one rename
    put "$1" "$2" "$3.new"
    mv -T "$3.new" "$3"
}

# Users, directories and owners belong to the machine that runs it, not to a tree for a package.
finish() {
    if [ -n "$destdir" ]; then
        echo "Installed below $destdir. On the machine itself run $prefix/share/qpidd/post-install once, as root."
    elif [ "$(id -u)" = 0 ]; then
        "$prefix/share/qpidd/post-install"
    fi
}

# ---- package, uninstall ------------------------------------------------------------------------------------------

# Files and links only: a directory in it could replace a link such as /lib on the machine where it is unpacked.
package() {
    local root=$work/root name
    name=qpidd-$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("qpidd-py"))')-$(uname -m).tar.gz
    rm -rf "$root"
    install_all "$root"
    mkdir -p dist
    (cd "$root" && find . ! -type d -printf '%P\n' | LC_ALL=C sort |
        tar -c --no-recursion --owner=0 --group=0 --files-from=- | gzip -1 -n) >"dist/.$name"
    client_wheel
    mv "dist/.$name" "dist/$name"
    echo "dist/$name"
}

# The client library alone, for programs that talk to brokers elsewhere: pure Python.
client_wheel() {
    local source=$work/client version
    version=$(sed -n 's/^version = //p' setup.cfg)
    rm -rf "$source"
    mkdir -p "$source/wheel"
    tar -c --exclude=__pycache__ client_lib | tar -x -C "$source"
    cp packaging/client/* "$source"
    sed -i "s/^version = .*/version = \"$version\"/" "$source/pyproject.toml"
    "$work/tools/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation \
        --wheel-dir "$source/wheel" "$source"
    mv "$source"/wheel/*.whl dist
    ls dist/qpidd_client-"$version"-*.whl
}

# What an installation has put below a root; the virtual environment as its folder.
list_files() {
    local root=${1%/} file
    for file in "${programs[@]}"; do
        echo "$root$prefix/bin/$file"
        echo "$root$prefix/share/bash-completion/completions/$file"
        echo "$root$prefix/share/zsh/vendor-completions/_$file"
    done
    for file in packaging/man/*; do
        echo "$root$(man_page "$file")"
    done
    for file in packaging/systemd/*.service; do
        echo "$root$prefix/lib/systemd/system/$(basename "$file")"
    done
    printf '%s\n' "$root$prefix"/lib/{qpidd,sysusers.d/qpidd.conf,tmpfiles.d/qpidd.conf} "$root$prefix/share/qpidd" \
        "$root$prefix/share/doc/qpidd" "$root"/etc/{logrotate.d/qpidd,init.d/qpidd,init.d/qpidd-primary} \
        "$root$ocf_root"/{resource.d,lib}/qpid
}

# Data, logs, configuration and the user stay: they are the administrator's.
uninstall() {
    local file
    while read -r file; do rm -rf "$file"; done < <(list_files "${destdir:-/}")
    echo "Removed. Left alone: /etc/qpid, /var/lib/qpidd, /var/log/qpidd and the user qpidd."
}

fail() {
    echo "install: $*" >&2
    exit 1
}

main "$@"
