#!/usr/bin/env bash
# Installs what tests and benchmarks use beside Go: tshark (dissects our
# captures), iperf3 and ucx_perftest (to compare with), a C compiler (checks
# structure layouts against the kernel's headers). Without root, or on systems
# without apt, it only says what is missing; tests that need it then skip.
set -euo pipefail

declare -A package=([tshark]=tshark [iperf3]=iperf3 [ucx_perftest]=ucx-utils [ip]=iproute2 [cc]=gcc)
missing=()
for tool in "${!package[@]}"; do
	command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
done
[ -e /usr/include/rdma/ib_user_verbs.h ] || missing+=(linux-libc-dev)
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "not installed: ${missing[*]} (what needs them is skipped)" >&2
	exit 0
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq "${missing[@]}" >/dev/null
