#!/bin/sh
# Brings a checkout to where everything runs: checks first, then .venv, the JVM connectors, and Spark's classes in an
# archive that makes every JVM start faster. Installs nothing globally.
# usage: scripts/setup.sh [java]      with "java": fetch a JDK into the cache folder instead
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=.venv
STAMP=$VENV/floodmark-stamp

fail() {
    printf 'Error: %s\nTry: %s\n' "$1" "$2" >&2
    exit 1
}

check_python() {
    command -v "$PYTHON" >/dev/null 2>&1 ||
        fail "$PYTHON was not found; Floodmark needs Python 3.10 or newer." \
            "install it (Debian: sudo apt-get install python3 python3-venv), or make setup PYTHON=/path/to/python"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$("$PYTHON" --version 2>&1) is too old; Floodmark needs Python 3.10 or newer." \
            "make setup PYTHON=/path/to/a/newer/python"
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$PYTHON cannot make virtual environments." "Debian: sudo apt-get install python3-venv"
}

check_java() {
    PYTHONPATH=src "$PYTHON" -m floodmark.spark.java >/dev/null || exit 1
}

make_venv() {
    [ -x $VENV/bin/python ] || "$PYTHON" -m venv $VENV
}

fingerprint() {
    if command -v sha256sum >/dev/null 2>&1; then
        cat requirements.lock pyproject.toml | sha256sum
    else
        cat requirements.lock pyproject.toml | shasum -a 256
    fi
}

install_packages() {
    wanted=$(fingerprint)
    if [ -f $STAMP ] && [ "$(cat $STAMP)" = "$wanted" ]; then
        return
    fi
    echo "installing the pinned packages into $VENV"
    make_venv
    $VENV/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
    $VENV/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
    printf '%s\n' "$wanted" >$STAMP.arriving
    mv $STAMP.arriving $STAMP # last: an interrupted setup starts over
}

fetch_java() {
    if PYTHONPATH=src "$PYTHON" -m floodmark.spark.java 2>/dev/null; then
        return
    fi
    echo "fetching a JDK"
    make_venv
    $VENV/bin/python -m pip install --quiet --disable-pip-version-check "$(grep '^install-jdk==' requirements.lock)"
    PYTHONPATH=src $VENV/bin/python -m floodmark.spark.java install
}

check_python
if [ "${1:-}" = java ]; then
    fetch_java
    exit
fi
check_java
install_packages
$VENV/bin/python -m floodmark.spark.connectors
$VENV/bin/python -m floodmark.spark.sharing
