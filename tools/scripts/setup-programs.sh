#!/usr/bin/env bash
# Installs the additional programs of `make programs`, besides those of tools/scripts/setup.sh (Debian, Ubuntu; as root).
# It omits programs that a release does not have. Their tests skip.
set -euo pipefail

packages=(libfabric-bin openmpi-bin libopenmpi-dev mpich libmpich-dev qperf fio tgt libiscsi-bin iperf netcat-openbsd netcat-traditional
	python3-mpi4py libgloo-dev ceph-mon ceph-mgr ceph-osd)
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "not root, or no apt-get: run what is installed of ${packages[*]}" >&2
	exit 0
fi
missing=()
for p in "${packages[@]}"; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
for p in "${missing[@]}"; do
	apt-get install -y -qq --no-install-recommends "$p" >/dev/null || echo "not to be had here: $p" >&2
done
