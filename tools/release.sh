#!/bin/sh
# release.sh OUTDIR: the source release of what is committed here: OUTDIR/pagestash-VERSION.tar.gz and its
# checksum, the same bytes whenever it is made. VERSION stands in include/pagestash/api.h alone. Refused while
# something is not committed, and unless CHANGELOG.md has "## VERSION - DATE" right below an empty "Unreleased".
set -eu
fail() { printf 'release.sh: %s\n' "$*" >&2 && exit 1; }
[ $# = 1 ] || { echo "usage: tools/release.sh OUTDIR" >&2 && exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

part() { sed -n "s/^#define PST_VERSION_$1 \([0-9]*\)$/\1/p" include/pagestash/api.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
echo "$version" | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$' || fail "include/pagestash/api.h: version \"$version\": allowed is X.Y.Z"
above=$(git rev-parse --show-cdup 2>&1) || fail "$PWD: no git clone to release from: $(echo "$above" | head -n 1)"
[ -z "$above" ] || fail "$PWD: no git clone to release from, but a folder of $(git rev-parse --show-toplevel)"
changes=$(git status --porcelain)
[ -z "$changes" ] || fail "not committed: $(echo "$changes" | head -n 1)"

headings=$(sed -n '/^## /{=;p;}' CHANGELOG.md | paste - - | head -n 2)
newest=$(echo "$headings" | sed -n 2p | cut -f2)
echo "$headings" | sed -n 1p | grep -q '	## Unreleased$' || fail "CHANGELOG.md: the first heading must be \"## Unreleased\""
echo "$newest" | grep -qxE "## $version - [0-9]{4}-[0-9]{2}-[0-9]{2}" ||
    fail "CHANGELOG.md: the second heading is \"$newest\": it must be \"## $version - YYYY-MM-DD\""
set -- $(echo "$headings" | cut -f1)
[ -z "$(sed -n "$(($1 + 1)),$(($2 - 1))p" CHANGELOG.md | tr -d '[:space:]')" ] ||
    fail "CHANGELOG.md: entries are left under \"Unreleased\""

name=pagestash-$version
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
git archive --format=tar --prefix="$name/" --output="$temporary/$name.tar" HEAD # no pipe, which would hide a failure
gzip -9n "$temporary/$name.tar"
(cd "$temporary" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
mv "$temporary/$name.tar.gz" "$temporary/$name.tar.gz.sha256" "$out"
echo "$out/$name.tar.gz"
