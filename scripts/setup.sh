#!/bin/sh
# Make the virtual environment FOLDER with the first suitable Python, and install this package into it.
# Usage: setup.sh FOLDER [EXTRA]      PYTHON=/path/to/python names one.
set -eu

folder=$1
extra=${2:+[$2]}
needed="Python 3.11, 3.12 or 3.13"

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

suitable() { case $1 in 3.11 | 3.12 | 3.13) true ;; *) false ;; esac; }

refuse() {
    printf 'setup: %s\n' "$@" >&2
    exit 2
}

find_python() {
    found="" incomplete="" chosen=""
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        version=$(version_of "$candidate") || continue
        if ! suitable "$version"; then
            found="$found $candidate ($version)"
        elif ! "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
            incomplete="$incomplete $candidate ($version)"
        else
            chosen=$candidate
            return
        fi
    done
    if [ -n "$incomplete" ]; then
        refuse "found$incomplete, but without the modules venv and ensurepip that a virtual environment needs." \
            "Install them (Debian, Ubuntu: apt install python3-venv), or name another: make run PYTHON=/path/to/python3.11"
    fi
    refuse "onn-runner needs $needed; found:${found:- no Python at all}." \
        "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13)," \
        "or name one that is not on the PATH: make run PYTHON=/path/to/python3.11"
}

# A folder whose Python went away or is too old is made anew.
if ! version=$(version_of "$folder/bin/python") || ! suitable "$version"; then
    find_python
    echo "setup: making $folder with $chosen ($version)"
    "$chosen" -m venv --clear "$folder" || refuse "$chosen could not make $folder; see above."
fi

echo "setup: installing onn-runner$extra into $folder (the first time some minutes and 6 GB)"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".$extra" --constraint constraints.txt ||
    refuse "the installation failed; see above. Nothing else is needed than a package index and 6 GB of disk: try again."
