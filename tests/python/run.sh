#!/bin/sh
# run.sh BUILD_DIR quick: the tests of tests/python/quick, in one process.
# run.sh BUILD_DIR FILE [ARGUMENTS...]: one file of tests.
# With the library and the command of BUILD_DIR, and the Python that third_party/install.sh --python made, else
# python3 if that has torch and numpy, else not at all: that fails where PSTI_TEST_ALL_TOOLS is 1.
# PSTI_TEST_PYTHON names another Python.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd) || exit 1
what=$2
shift 2

python=${PSTI_TEST_PYTHON-$source/build/python/bin/python}
if [ ! -x "$python" ]; then
    python=python3
    "$python" -c 'import torch, numpy' 2>/dev/null || {
        echo "skipped: no Python with torch and numpy; third_party/install.sh --python makes one"
        [ "${PSTI_TEST_ALL_TOOLS-}" != 1 ] || exit 1
        exit 77
    }
fi

export PAGESTASH_LIBRARY="$build/libpagestash.so" PAGESTASH_COMMAND="$build/bin/pagestash"
export PYTHONPATH="$source/python:$source/tests/python" PYTHONDONTWRITEBYTECODE=1
export PSTI_TEST_BUILD="$build" OMP_NUM_THREADS=1
# torch's operators in C++, of these very sources; without a compiler those in Python are tested.
if [ -z "${PAGESTASH_OPS-}" ]; then
    PAGESTASH_OPS=$("$python" -m pagestash.build_ops --cached "$build/python-ops") || {
        [ "${PSTI_TEST_ALL_TOOLS-}" != 1 ] || exit 1
        PAGESTASH_OPS=python
    }
    export PAGESTASH_OPS
fi
if [ "$what" = quick ]; then
    exec "$python" -m unittest discover --start-directory "$source/tests/python/quick" "$@"
fi
exec "$python" "$what" "$@"
