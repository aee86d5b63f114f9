#!/bin/busybox sh
# Process 1 of the virtual machine: loads the modules, then runs rxepeer on the
# control channel until the other side closes it.
/bin/busybox --install -s /bin
rm -f /bin/ip /bin/tc /bin/ping6
export PATH=/usr/bin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
while read -r module; do
	insmod "/modules/$module" || echo "insmod $module failed"
done </modules/order
ip link set lo up
ulimit -l unlimited
mkdir -p /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
	read -r name <"$port/name"
	ln -s "/dev/${port##*/}" "/dev/virtio-ports/$name"
done
rxepeer /dev/virtio-ports/control
poweroff -f
