#!/bin/sh
# make.sh [OUTDIR]: the API reference, made of the public headers by Doxygen: OUTDIR/html/index.html, and
# OUTDIR/man/man3 with a page for each header and struct and a link for each name. OUTDIR is build/api if
# it is not said. Fails where a public name has no comment, and on every other warning.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:-$source/build/api}"
out=$(cd "${1:-$source/build/api}" && pwd)
cd "$source"

rm -rf "$out/html" "$out/man"
{
    cat docs/api/Doxyfile
    echo "OUTPUT_DIRECTORY = \"$out\""
    echo "PROJECT_NUMBER = $(awk '/define PST_VERSION_(MAJOR|MINOR|PATCH)/ { v = v d $3; d = "." } END { print v }' \
        include/pagestash/api.h)"
} >"$out/Doxyfile"
status=0
doxygen "$out/Doxyfile" >"$out/output" 2>"$out/warnings" || status=$?
if [ "$status" != 0 ] || [ -s "$out/warnings" ]; then
    sed "s|^$source/||" "$out/warnings" >&2
    echo "docs/api/make.sh: the reference has warnings" >&2
    exit 1
fi

# What a search finds stands in frames that know this file only.
cat python/pagestash/style.css docs/api/api.css >"$out/html/search/search.css"

# Man pages: members stand in their structs' pages and get no link; headers' pages get the library's name
# before theirs; a line of text that begins with a quotation mark is no request to the formatter; code is bold, as
# not every formatter knows font C.
cd "$out/man/man3"
for page in *; do
    case $page in
    pst_* | PST_*) ;;
    *.h.3) mv "$page" "pagestash_$page" ;;
    *) rm "$page" ;;
    esac
done
sed -i -e 's/\\fC/\\fB/g' -e "s/^'/\\\\\&'/" -e 's|^\.so man3/\([a-z_]*\.h\.3\)|.so man3/pagestash_\1|' ./*
