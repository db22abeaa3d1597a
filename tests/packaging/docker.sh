#!/bin/sh
# docker.sh ROOT [PATTERN]: the RUN lines of Dockerfile, one after the other, in a root of the Debian that it names,
# with what is committed here where its COPY puts it. ROOT: a folder that mmdebstrap makes if it is absent, and that
# keeps what was built. PATTERN: a grep pattern of the lines to run; without one all.
set -eu
root=$1
pattern=${2-.}
here=$(dirname "$0")
file=$here/../../Dockerfile
part() { sed -n "s/^$1 //p" "$file"; }
release=$(part FROM | sed 's/^debian://')
folder=$(part WORKDIR)

[ "$(part COPY)" = ". $folder" ] || { echo "docker.sh: COPY: \"$(part COPY)\": must be \". $folder\"" >&2 && exit 1; }
[ -d "$root" ] || mmdebstrap --variant=minbase --quiet "$release" "$root"
mkdir -p "$root$folder"
git -C "$here/../.." archive --format=tar HEAD | tar -xf - -C "$root$folder"

part RUN | grep -e "$pattern" | while IFS= read -r line; do
    echo "docker.sh: RUN $line"
    unshare --mount sh -eu -c '
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
            sh -c "cd $2 && $3"' docker.sh "$root" "$folder" "$line" </dev/null
done
