#!/usr/bin/env bash
# setup.sh FOLDER RELEASE: prepares the virtual machine of package vm. It installs QEMU and the RDMA programs that run
# inside. It unpacks the kernel of a Debian release into the given folder, without installing it. Package vm builds the
# rest of the image.
# If that is impossible (no root, no Debian for amd64), it prints the reason and exits with 77.
set -euo pipefail
cache=${1:?usage: setup.sh FOLDER RELEASE}
release=${2:?usage: setup.sh FOLDER RELEASE}
mkdir -p "$cache"

declare -A package=([qemu-system-x86_64]=qemu-system-x86 [xz]=xz-utils [zstd]=zstd [ip]=iproute2 [cc]=gcc
	[ibv_devinfo]=ibverbs-utils [ib_write_bw]=perftest [rping]=rdmacm-utils [rdma]=iproute2 [tcpdump]=tcpdump)
missing=()
for tool in "${!package[@]}"; do
	command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
done
[ -e /usr/include/infiniband/verbs.h ] || missing+=(libibverbs-dev)
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
[ -e /usr/share/qemu/pvh.bin ] || missing+=(qemu-system-data)
[ -e /etc/libibverbs.d/rxe.driver ] || missing+=(ibverbs-providers)
[ -n "$(dpkg -L busybox-static 2>/dev/null)" ] || missing+=(busybox-static)
[ ${#missing[@]} = 0 ] && [ -e "$cache/kernel/done" ] && exit 0

if [ "$(id -u)" != 0 ] || ! grep -q '^ID=debian' /etc/os-release || [ "$(dpkg --print-architecture)" != amd64 ]; then
	echo "root on Debian for amd64 is needed to install: ${missing[*]} and a kernel" >&2
	exit 77
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
if [ ${#missing[@]} -gt 0 ]; then
	echo "installing: ${missing[*]}"
	apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ! -e "$cache/kernel/done" ]; then
	mkdir -p "$cache/apt/lists/partial" "$cache/apt/cache/archives/partial"
	# Use this machine's mirror. The release may be another one.
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n1)
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$cache/apt/sources.list"
	options=(-o "Dir::Etc::SourceList=$cache/apt/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$cache/apt/lists"
		-o "Dir::Cache=$cache/apt/cache" -o APT::Sandbox::User=root)
	apt-get "${options[@]}" update -qq
	kernel=$(apt-cache "${options[@]}" depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n1)
	echo "unpacking: $kernel"
	rm -rf "$cache/kernel" "$cache"/linux-image-*.deb
	(cd "$cache" && apt-get "${options[@]}" download -qq "$kernel")
	dpkg -x "$cache"/linux-image-*.deb "$cache/kernel"
	rm -rf "$cache"/linux-image-*.deb "$cache/apt"
	touch "$cache/kernel/done"
fi
