# What README.md says of a fresh Debian 12 machine, as an image: make, and then the two commands. This file was never
# given to Docker; tests/packaging/docker.sh runs its RUN lines in a root of Debian (.ci/run docker).
FROM debian:bookworm
COPY . /pagestash
WORKDIR /pagestash
RUN apt-get update && apt-get -y install --no-install-recommends make
RUN make demo
RUN make test
