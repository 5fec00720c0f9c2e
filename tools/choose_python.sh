#!/bin/bash
# Prints the interpreter that the virtual environment is made from.      choose_python.sh [PYTHON [SYSTEM]]
#
# PYTHON (python3), or SYSTEM (/usr/bin/python3) where that has the same minor version, venv and header files: the
# distribution builds it with profiles of its use, and it takes 10 to 25 % less processor time than most others.
set -uo pipefail
python=${1:-python3} system=${2:-/usr/bin/python3}

version() { "$1" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null; }
whole() {
    "$1" -c 'import ensurepip, os, sysconfig, venv
raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

if wanted=$(version "$python") && [ "$wanted" = "$(version "$system")" ] && whole "$system"; then
    python=$system
fi
echo "$python"
