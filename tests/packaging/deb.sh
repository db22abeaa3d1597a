#!/bin/sh
# deb.sh ROOT DEB...
# Debian packages in a fresh root, as a user has it: apt installs them, a C program builds and runs, the manual and
# the command are there, and after purge and autoremove the files are those of before, but for what apt and dpkg
# keep for themselves. ROOT: a folder that mmdebstrap makes if it is absent.
set -eu
root=$1
shift
here=$(dirname "$0")
fail() { printf 'deb.sh: %s\n' "$*" >&2 && exit 1; }

lintian --tag-display-limit 0 --fail-on error,warning "$@"
[ -d "$root" ] || mmdebstrap --variant=apt --quiet bookworm "$root"
rm -rf "$root/packages"
mkdir "$root/packages"
cp "$@" "$root/packages"
cp "$here/consumer.c" "$root/packages"

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
files() { # of apt and dpkg: their state, caches and logs, and what ldconfig makes
    (cd "$root" && find . -path ./proc -prune -o -path ./sys -prune -o -path ./dev -prune -o -path ./packages -prune -o \
        -print | grep -vE '^\./(var/(lib/(dpkg|apt)|cache/(apt|ldconfig|debconf)|log)(/|$)|etc/ld\.so\.cache|tmp/)' | LC_ALL=C sort)
}

files >"$root.before"
inside apt-get -qq update
inside sh -c 'apt-get -qq install --no-install-recommends /packages/*.deb gcc pkg-config' >"$root.log" 2>&1 ||
    { tail "$root.log" >&2; fail "apt could not install"; }
inside sh -c 'gcc -std=c11 /packages/consumer.c -o /packages/consumer $(pkg-config --cflags --libs pagestash) && /packages/consumer'
inside pagestash estimate --preset llama2-7b --world-size 8 >/dev/null
for file in man/man1/pagestash-plan.1.gz man/man3/pst_pool_poll.3.gz doc/pagestash/docs/design.md \
    doc/pagestash/html/index.html; do
    [ -s "$root/usr/share/$file" ] || fail "no /usr/share/$file"
done
packages=$(for deb in "$@"; do dpkg-deb -f "$deb" Package; done)
inside apt-get -qq purge --autoremove $packages gcc pkg-config >>"$root.log" 2>&1
files >"$root.after"
diff "$root.before" "$root.after" || fail "purge left files behind, or took others away"
echo "installed, built with, purged: $(echo $packages)"
