#!/bin/sh
# check.sh CASE SOURCE_DIR BUILD_DIR VERSION
# Installs into one prefix, moves that to another, and uses it as users would:
#   install   installs, moves, looks at what came out (the others need this one first)
#   shared, static, pkgconfig, subdirectory   build and run consumer.c
#   headers   every public header compiles alone, as C11 and as C++17, and inits.c as C11 and as
#             C++11 to C++20, by gcc and clang, without warnings; all also within extern "C"
set -eu
case=$1 source=$2 build=$3 version=$4
work=$build/packaging
prefix=$work/moved
here=$source/tests/packaging

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

check_install() {
    rm -rf "$work"
    mkdir -p "$work"
    cmake --install "$build" --prefix "$work/first" >"$work/install.log"
    mv "$work/first" "$prefix"
    cd "$prefix"
    # as a path of its own: a source in /pagestash is not what share/doc/pagestash says
    where=$(printf '%s' "$source" | sed 's/[][\.*^$+?(){}|]/\\&/g')
    if grep -rlIF -e "$work/first" . || grep -rlIE "(^|-I|-L|[[:space:]\"'=:;(,])$where(/|[^[:alnum:]_.-]|\$)" .; then
        fail "installed text files name the prefix or the source tree"
    fi
    [ "$(ls include)" = pagestash ] || fail "include/ holds more than pagestash/"
    library=$(find . -name "libpagestash.so.$version")
    [ -n "$library" ] || fail "no libpagestash.so.$version"
    readelf -d "$library" >"$work/dynamic"
    case $version in # until 1.0 the minor version has a SONAME of its own
    0.*) soname=libpagestash.so.${version%.*} ;;
    *) soname=libpagestash.so.${version%%.*} ;;
    esac
    grep -q "SONAME.*\[$soname\]" "$work/dynamic" || fail "the SONAME is not $soname"
    # librt, libdl and libpthread are parts of libc that older ones keep in files of their own.
    libc='\[(libc|ld-linux-[a-z0-9-]+|lib(rt|dl|pthread))\.so'
    if grep NEEDED "$work/dynamic" | grep -vE "$libc"; then
        fail "the shared library needs more than libc"
    fi
    if grep -E -e '-L/' "$(find . -name pagestash.pc)"; then
        fail "pagestash.pc names a folder of this machine"
    fi
    for name in man/man1/pagestash.1.gz man/man1/pagestash-plan.1.gz bash-completion/completions/pagestash \
        zsh/vendor-completions/_pagestash doc/pagestash/README.md doc/pagestash/docs/design.md \
        pagestash/schemas/plan.json; do
        [ -s "share/$name" ] || fail "no share/$name"
    done
}

consume_cmake() {
    cmake -S "$here" -B "$work/$case" -DGET="$case" "$@" >"$work/$case.log" 2>&1 &&
        cmake --build "$work/$case" >>"$work/$case.log" 2>&1 || {
        tail -n 30 "$work/$case.log"
        fail "$case: the consumer does not build"
    }
    "$work/$case/consumer"
}

consume_pkgconfig() {
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name pagestash.pc)")
    export PKG_CONFIG_PATH
    [ "$(pkg-config --modversion pagestash)" = "$version" ] || fail "wrong version"
    libdir=$(pkg-config --variable=libdir pagestash)
    cc -std=c11 "$here/consumer.c" -o "$work/pc_shared" $(pkg-config --cflags --libs pagestash)
    LD_LIBRARY_PATH=$libdir "$work/pc_shared"
    # The linker would take the shared library that lies next to it.
    static=$(pkg-config --static --cflags --libs pagestash | sed 's/-lpagestash/-l:libpagestash.a/')
    cc -std=c11 "$here/consumer.c" -o "$work/pc_static" $static # its folder is in LIBRARY_PATH
    "$work/pc_static"
    c++ -std=c++11 -x c++ "$here/inits.c" -o "$work/pc_cxx" $(pkg-config --cflags --libs pagestash)
    LD_LIBRARY_PATH=$libdir "$work/pc_cxx"
}

check_inits() {
    for header in "$source"/include/pagestash/*.h; do
        for name in $(sed -n 's/^#define \(PST_[A-Z_]*_INIT\)\b.*/\1/p' "$header"); do
            grep -qw "$name" "$here/inits.c" || fail "$name is missing in inits.c"
        done
    done
    for compiler in 'gcc c' 'clang c' 'g++ c++' 'clang++ c++'; do
        set -- $compiler
        command -v "$1" >/dev/null || continue
        for std in $([ "$2" = c ] && echo c11 || echo c++11 c++14 c++17 c++20); do
            "$1" -x "$2" "-std=$std" -fsyntax-only -I "$source/include" -pedantic-errors -Wall \
                -Wextra -Wpedantic -Wconversion -Wshadow -Werror "$here/inits.c"
        done
        [ "$2" = c ] || printf 'extern "C" {\n#include <pagestash/pagestash.h>\n}\n' |
            "$1" -x c++ -std=c++11 -fsyntax-only -I "$source/include" -pedantic-errors -Wall -Wextra \
                -Wpedantic -Wzero-as-null-pointer-constant -Werror -
    done
}

# README's program compiles and runs with the installed library.
check_readme() {
    awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$source/README.md" >"$work/readme.c"
    cc -std=c11 -Wall -Wextra -Werror "$work/readme.c" -o "$work/readme" \
        $(pkg-config --cflags --libs pagestash)
    LD_LIBRARY_PATH=$libdir "$work/readme"
}

compile_header() {
    printf '#include <pagestash/%s>\n#include <pagestash/%s>\n' "$1" "$1" |
        "$2" -x "$3" -std="$4" -fsyntax-only -I "$source/include" -pedantic-errors -Wall -Wextra \
            -Wpedantic -Wconversion -Wshadow -Werror -
}

check_headers() {
    for header in "$source"/include/pagestash/*.h; do
        name=$(basename "$header")
        compile_header "$name" cc c c11
        compile_header "$name" c++ c++ c++17
        grep -q "^#include <pagestash/$name>" "$source/include/pagestash/pagestash.h" ||
            [ "$name" = pagestash.h ] || fail "$name is missing in pagestash.h"
    done
}

# The static library of a build with CUDA where there is no toolkit: the message says what is missing.
check_without_toolkit() {
    grep -qE 'pagestash_HAVE_CUDA (1|TRUE|ON)\)' "$(find "$prefix" -name pagestash-config.cmake)" || return 0
    if cmake -S "$here" -B "$work/no_toolkit" -DGET=static -DCMAKE_PREFIX_PATH="$prefix" \
        -DEXPECTED_VERSION="$version" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON >"$work/no_toolkit.log" 2>&1; then
        fail "the static library is found without a toolkit"
    fi
    grep -q 'pagestash_static_needs_a_CUDA_toolkit' "$work/no_toolkit.log" ||
        fail "without a toolkit the message does not say what is missing, see $work/no_toolkit.log"
}

case $case in
install) check_install ;;
shared | static)
    consume_cmake -DCMAKE_PREFIX_PATH="$prefix" -DEXPECTED_VERSION="$version"
    [ "$case" = shared ] || check_without_toolkit
    ;;
subdirectory)
    # The cuda kernels are not compiled once more only for this.
    consume_cmake -DPAGESTASH_SOURCE="$source" -DPAGESTASH_CUDA=OFF
    ctest --test-dir "$work/$case" -N | grep -q '^Total Tests: 0$' || fail "it brought tests along"
    ;;
pkgconfig)
    consume_pkgconfig
    check_readme
    ;;
headers)
    check_headers
    check_inits
    ;;
*) fail "unknown case $case" ;;
esac
