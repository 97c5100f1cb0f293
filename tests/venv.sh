#!/bin/sh
# Make a virtual environment with a pip that knows dependency groups: venv.sh PYTHON DIRECTORY
set -eu
python=$1 directory=$2
if ! command -v "$python" >/dev/null; then
    echo "lockctl needs Python 3.10 or newer, and there is no $python" >&2
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
    echo "installing python3 with apt-get" >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >/dev/null
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "lockctl needs Python 3.10 or newer: make PYTHON=python3.11 ..." >&2
    exit 1
}
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian ships venv apart from Python
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing python3-venv with apt-get" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
    else
        echo "this Python has no venv: ask root for: apt-get install python3-venv" >&2
        exit 1
    fi
fi
rm -rf "$directory"
"$python" -m venv "$directory"
"$directory/bin/python" -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
# nothing here needs setuptools, whose hook costs each start of a Python a millisecond
"$directory/bin/python" -m pip uninstall -q -y setuptools
