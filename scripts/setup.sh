#!/usr/bin/env bash
# Installs what tests and benchmarks use beside Go: tshark (dissects our
# captures), iperf3 and ucx_perftest (to compare with), a C compiler (builds the
# preload library, checks structure layouts against the kernel's headers), and the
# RDMA programs that are run unmodified. Without root, or on systems without apt,
# it only says what is missing; tests that need it then skip.
set -euo pipefail

declare -A package=([tshark]=tshark [iperf3]=iperf3 [ucx_perftest]=ucx-utils [ip]=iproute2 [cc]=gcc [curl]=curl
	[ibv_rc_pingpong]=ibverbs-utils [ib_write_bw]=perftest [rping]=rdmacm-utils)
missing=()
for tool in "${!package[@]}"; do
	command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
done
file() { [ -e "$1" ] || missing+=("$2"); }
file /usr/include/rdma/ib_user_verbs.h linux-libc-dev
file /usr/include/stdio.h libc6-dev
file /usr/include/infiniband/verbs.h libibverbs-dev
file /usr/include/rdma/rdma_cma.h librdmacm-dev
file /etc/libibverbs.d/rxe.driver ibverbs-providers
file /usr/lib/python3/dist-packages/pyverbs/__init__.py python3-pyverbs
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "not installed: ${missing[*]} (what needs them is skipped)" >&2
	exit 0
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq "${missing[@]}" >/dev/null
