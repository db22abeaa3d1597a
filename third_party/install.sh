#!/bin/sh
# Installs what building and testing need, with apt, and does nothing when all is there.
# The CUDA toolkit is not installed: it is used if it is found.
# install.sh --browser installs Chromium, too, which only the check of the plans' pictures needs.
# install.sh --packages installs what the check of Debian's packages needs.
# install.sh --aarch64 installs a cross compiler, libraries of arm64, which it makes dpkg and apt know, and qemu-user.
# install.sh --cuda12 makes build/cuda12, too, CUDA 12.4 without nvcc, from PyPI.
# install.sh --python makes build/python, too, the environment with torch for the tests of the Python package.
set -eu
here=$(dirname "$0")

packages="cmake ninja-build gcc g++ git make pkg-config python3 python3-jsonschema python3-matplotlib
          python3-pycparser python3-yaml libgtest-dev libjansson-dev coinor-libcbc3 spin relacy-dev
          mandoc zsh doxygen clang libclang-rt-14-dev clang-tidy clang-format abigail-tools
          libopenblas0-pthread"
case "${1-}" in
"") ;;
--browser) packages="$packages chromium" ;;
--python) packages="$packages python3-venv python3-dev" ;;
--packages) packages="$packages lintian mmdebstrap util-linux" ;;
--aarch64)
    packages="$packages gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
              libjansson-dev:arm64 libgtest-dev:arm64 libstdc++6:arm64" ;;
--cuda12) packages="$packages python3-venv" ;;
*) echo "usage: third_party/install.sh [--aarch64 | --browser | --cuda12 | --packages | --python]" >&2; exit 2 ;;
esac

missing() {
    native=$(dpkg --print-architecture 2>/dev/null) || return 1
    for package in $packages; do
        case $package in
        *:*) architecture=${package##*:} ;;
        *) architecture=$native ;;
        esac
        dpkg-query -W -f '${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null |
            grep -qxE "($architecture|all) installed" || printf '%s ' "$package"
    done
}

say() { printf 'third_party/install.sh: %s\n' "$1" >&2; }

install_packages() { # those of $list
    if [ "$(id -u)" = 0 ]; then
        root=
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        root=sudo
    elif command -v sudo >/dev/null && [ -t 0 ]; then
        root=sudo
    else
        say "needs root or sudo to run: apt-get install $list"
        exit 1
    fi

    say "installing $list"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    case $list in
    *:arm64*)
        dpkg --print-foreign-architectures | grep -qx arm64 || {
            $root dpkg --add-architecture arm64
            apt update
        } ;;
    esac
    # Package lists may be absent or too old to fetch from.
    apt install --no-install-recommends $list ||
        { apt update && apt install --no-install-recommends $list; } || {
        tail -n 5 "$log" >&2
        say "apt-get could not install $list"
        exit 1
    }
}
apt() { $root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >>"$log" 2>&1; }

list=$(missing) || { say "not a Debian system; install by hand: $(echo $packages)"; exit 1; }
[ -z "$list" ] || install_packages
case "${1-}" in
--python) "$here/python_venv.py" ;;
--cuda12) "$here/python_venv.py" --cuda12 ;;
esac
