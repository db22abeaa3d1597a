#!/bin/bash
# gpu-package.sh [DIR]: builds what tools/gpu-first.sh and gpu-check.sh run, for a GPU machine without packages and
# network: code for sm_90 only, everything but libc linked statically, stripped, at most 48 MiB.
# DIR is build/gpu unless given. It can be copied anywhere: DIR/gpu-first.sh and DIR/gpu-check.sh find what lies beside them.
# gpu-package.sh --check [DIR]: packs DIR, unpacks it elsewhere, and runs there what needs no GPU, without an
# environment: every program starts, dry runs find all commands, one example runs on host.
# gpu-package.sh --from PROGRAMS DIR: packs these in place of what it builds. The tests do, with programs that run
# on a pretended GPU.
set -euo pipefail
only_check= programs=
[ "${1-}" != --check ] || { only_check=yes && shift; }
fail() { printf 'gpu-package.sh: %s\n' "$1" >&2 && exit 1; }
if [ "${1-}" = --from ]; then
    [ $# -eq 3 ] && [ -d "$2" ] || fail '--from wants a folder of programs, and DIR'
    programs=$2 && shift 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$root/build/gpu}
build=${GPU_PACKAGE_BUILD:-$root/build/gpu-package}
most_mib=48

check_package() {
    local scratch packed there stage program
    scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' RETURN
    packed=$scratch/packed.tar.gz there=$scratch/elsewhere
    mkdir "$there" && tar -C "$dir" -czf "$packed" . && tar -C "$there" -xzf "$packed"
    bare() { (cd "$there" && env -i PATH=/usr/bin:/bin timeout 60 "$@" >"$scratch/said" 2>&1); }
    must() { bare "$@" || { cat "$scratch/said" >&2 && fail "unpacked elsewhere, this fails: $*"; }; }
    for program in pagestash pagestash-bench pagestash-schedule-bench; do
        must "./bin/$program" --version
    done
    bare ./bin/pagestash-placement --nonsense || [ $? -eq 2 ] || fail 'pagestash-placement does not start'
    must ./bin/pagestash_tests --gtest_list_tests
    must ./bin/example_01_stash_restore host
    must ./bin/pagestash env
    must python3 bench/goals.py --help
    must ./gpu-first.sh --dry-run
    for stage in $(bare ./gpu-check.sh --list && cut -d ' ' -f 1 "$scratch/said"); do
        must ./gpu-check.sh --dry-run none "$stage"
    done
    printf '%s: %d KiB packed; unpacked elsewhere it runs on host, and %d stages find their commands\n' "$dir" \
        $(($(stat -c %s "$packed") >> 10)) "$(bare ./gpu-check.sh --list && wc -l <"$scratch/said")"
}

if [ -n "$only_check" ]; then
    [ -f "$dir/BUILD" ] || fail "$dir: no package"
    check_package
    exit
fi

commit=$(git -C "$root" describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null) || commit=unknown
toolkit=unknown
log=$build/package.log

# Into $build/programs.
build_programs() {
    local jansson cudart source
    jansson=$(cc -print-file-name=libjansson.a)
    [ -f "$jansson" ] || fail "no libjansson.a: third_party/install.sh"
    programs=$build/programs
    rm -rf "$programs" && mkdir -p "$programs"
    {
        cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES=90-real \
            -DPAGESTASH_CUDA=ON -DPAGESTASH_TEST_TSAN=OFF -DPAGESTASH_COMMIT="$commit" \
            -DJANSSON_LIBRARY="$jansson" \
            -DCMAKE_EXE_LINKER_FLAGS="-static-libgcc -static-libstdc++" &&
            cmake --build "$build" --target pagestash-cli pagestash_bench pagestash_placement \
                pagestash_schedule_bench pagestash_tests pagestash \
                pagestash_static
    } >"$log" 2>&1 || { tail -n 20 "$log" >&2 && fail "the build failed, see $log"; }
    cp "$build"/bin/pagestash{,-bench,-placement,-schedule-bench} "$build/tests/pagestash_tests" \
        "$build/libpagestash.so" "$programs" # the last for bench/peers
    cudart=$(sed -n 's/^CUDA_cudart_static_LIBRARY:FILEPATH=//p' "$build/CMakeCache.txt")
    for source in "$root"/examples/*.c; do
        cc -std=c11 -O2 -I"$root/include" "$source" "$build/libpagestash.a" "$cudart" -static-libgcc \
            -pthread -ldl -lrt -lm -o "$programs/example_$(basename "$source" .c)"
    done
    strip --strip-unneeded "$programs"/*
    toolkit=$(sed -n 's/.*CUDA \([0-9.]*\), architectures.*/\1/p' "$log" | tail -n 1)
}

# What gpu-train.py and gpu-memo.py run, and the operators in C++ where a torch is here to build them against.
package_python() {
    mkdir -p "$dir/tests/python/common" "$dir/python"
    (cd "$root/python" && find pagestash -name '*.py' -o -path 'pagestash/csrc/*') |
        tar -C "$root/python" -c -T - | tar -C "$dir/python" -x
    cp -r "$root/include" "$dir/python/pagestash" # as in a wheel: build_ops works there, too
    cp "$root"/tests/python/common/{__init__,gpt,moe,memory}.py "$dir/tests/python/common"
    cp "$root/LICENSE" "$root"/tools/gpu-{train,memo}.py "$dir"
}

package_ops() {
    local python=$root/build/python/bin/python
    [ -x "$python" ] || python=python3
    if "$python" -c 'import torch' 2>/dev/null; then
        PAGESTASH_LIBRARY=$build/libpagestash.so PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1 \
            "$python" -m pagestash.build_ops "$dir/python/pagestash/lib" >>"$log" || fail 'the ops were not built'
    else
        printf 'gpu-package.sh: no torch here: the package goes without the ops in C++\n' >&2
    fi
}

package() {
    rm -rf "$dir"
    mkdir -p "$dir/bin" "$dir/data" "$dir"/bench/{common,peers}
    cp "$programs"/* "$dir/bin"
    cp "$root/bench/goals.py" "$dir/bench"
    cp "$root"/bench/common/*.py "$dir/bench/common"
    cp "$root"/bench/peers/*.py "$dir/bench/peers"
    cp "$root"/bench/data/*.csv "$dir/data"
    cp "$root"/tools/gpu-{check,common,first}.sh "$dir"
    package_python
    printf 'commit=%s\ntoolkit=%s\n' "$commit" "$toolkit" >"$dir/BUILD"
}

if [ -n "$programs" ]; then
    package
    exit
fi
mkdir -p "$build"
build_programs
package
package_ops
for binary in "$dir"/bin/*; do
    foreign=$(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(lib(c|m|dl|rt|pthread)|ld-linux.*)\.so' || true)
    [ -z "$foreign" ] || fail "$binary needs $foreign"
done
bytes=$(du -sb "$dir" | cut -f1)
[ "$bytes" -le $((most_mib << 20)) ] || fail "$dir has $bytes bytes, more than $most_mib MiB"
printf '%s: %d KiB, commit %s, CUDA %s, sm_90\n' "$dir" $((bytes >> 10)) "$commit" "$toolkit"
check_package
