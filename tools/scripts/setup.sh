#!/usr/bin/env bash
# setup.sh [test|check|pristine|package|cross]: installs what is used beside Go, make and git.
#
# test: the tools of make test:
#   C compiler, headers  build the preload library, check structure layouts against the kernel's headers
#   a C++ compiler       builds the linter of prose
#   groff                checks the manual pages
#   ip, tc, nft          networks and a firewall
#   shellcheck           steps of CI
#   tshark               dissects our captures
#   provider of libibverbs  finds our devices for test programs
# check: the further tools of make check and the benchmarks:
#   iperf3, ucx_perftest for comparison
#   RDMA programs        run unmodified
#   lstopo, lspci        list PCI devices
#   runc, buildah        containers, and the image
#   npm                  the site of the documents
#   Slurm                a sweep of the simulator as a job array
#   valgrind
#   Chromium             the live page
#   Prometheus, node_exporter  metrics
#   systemd-analyze, strace, other shells  check the installed files
# pristine: the tools with which tools/scripts/pristine makes its roots.
# package: the tools that make Debian packages for all processors.
# cross: emulators of other processors, and compilers for them and for musl.
#
# Without root, or on systems without apt, it only prints the missing packages. Tests that need them then skip.
set -euo pipefail

missing=()
tool() { command -v "$1" >/dev/null || missing+=("$2"); }
file() { [ -e "$1" ] || missing+=("$2"); }
case ${1:-test} in
test)
	tool c++ g++
	tool cc gcc
	tool groff groff-base
	tool ip iproute2
	tool nft nftables
	tool shellcheck shellcheck
	tool tshark tshark
	file /etc/libibverbs.d/rxe.driver ibverbs-providers
	file /usr/include/infiniband/verbs.h libibverbs-dev
	file /usr/include/rdma/ib_user_verbs.h linux-libc-dev
	file /usr/include/rdma/rdma_cma.h librdmacm-dev
	file /usr/include/stdio.h libc6-dev
	;;
check)
	tool buildah buildah
	tool chromium chromium
	tool curl curl
	tool fish fish
	tool ib_write_bw perftest
	tool ibv_rc_pingpong ibverbs-utils
	tool prometheus prometheus
	tool prometheus-node-exporter prometheus-node-exporter
	tool iperf3 iperf3
	tool munged munge
	tool npm npm
	tool ibstat infiniband-diags
	tool lspci pciutils
	tool lstopo-no-graphics hwloc-nox
	tool rping rdmacm-utils
	tool runc runc
	tool sbatch slurm-client
	tool slurmctld slurmctld
	tool slurmd slurmd
	tool strace strace
	tool systemd-analyze systemd
	tool ucx_perftest ucx-utils
	tool valgrind valgrind
	tool zsh zsh
	file /usr/lib/python3/dist-packages/pyverbs/__init__.py python3-pyverbs
	;;
cross)
	tool qemu-s390x-static qemu-user-static
	tool aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
	tool i686-linux-gnu-gcc gcc-i686-linux-gnu
	tool musl-gcc musl-tools
	file /usr/aarch64-linux-gnu/include/stdio.h libc6-dev-arm64-cross
	file /usr/i686-linux-gnu/include/stdio.h libc6-dev-i386-cross
	;;
package)
	tool cc gcc
	file /usr/include/stdio.h libc6-dev
	tool dpkg-deb dpkg
	tool aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
	tool x86_64-linux-gnu-gcc gcc-x86-64-linux-gnu
	tool readelf binutils
	file /usr/aarch64-linux-gnu/include/stdio.h libc6-dev-arm64-cross
	;;
pristine)
	tool mmdebstrap mmdebstrap
	tool unshare util-linux
	file /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
	;;
*)
	sed -n '2s/^# //p' "$0" >&2
	exit 2
	;;
esac
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "not installed: ${missing[*]} (what needs them is skipped)" >&2
	exit 0
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
wait=(-o DPkg::Lock::Timeout=600) # for another installation, such as unattended upgrades
apt-get "${wait[@]}" install -y -qq "${missing[@]}" >/dev/null && exit
# Some packages are unavailable: install the others, and print the unavailable ones, whose tests skip.
for p in "${missing[@]}"; do
	apt-get "${wait[@]}" install -y -qq "$p" >/dev/null 2>&1 || echo "not to be had here: $p" >&2
done
