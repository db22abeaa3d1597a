#!/bin/sh
# check_clock.sh ROOT: no wait and no interval of the library depends on wall time, which may jump.
# (Only the log shows it: put_line of log.c.)
# check_clock.sh --self-test: plants each forbidden call and wants it found.
words='CLOCK_REALTIME|gettimeofday|(^|[^a-z])ftime|(^|[^_a-z])time\(|cond_timedwait|mutex_timedlock|sem_timedwait'
words="$words|timer_settime|setitimer|[^_a-z]alarm\("

find_in() {
    grep -rnE "$words" "$@" --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' |
        grep -v '^host/base/log\.c:.* clock_gettime(CLOCK_REALTIME, &now);$'
}

if [ "$1" = --self-test ]; then
    folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$folder"' EXIT
    for call in 'clock_gettime(CLOCK_REALTIME, &t)' 'gettimeofday(&t, NULL)' 'x = time(NULL)' \
        'pthread_cond_timedwait(&c, &m, &t)' 'sem_timedwait(&s, &t)' 'alarm(1)' ' alarm(1)'; do
        printf '    %s;\n' "$call" >"$folder/planted.c"
        find_in "$folder" >/dev/null || { echo "not found: $call"; exit 1; }
    done
    printf '    clock_gettime(CLOCK_MONOTONIC, &t); runtime(x); strftime(x);\n' >"$folder/planted.c"
    ! find_in "$folder"
else
    cd "$1" && ! find_in include host kernels python tools/replay
fi
