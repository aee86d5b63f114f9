#!/bin/busybox sh
# Process 1 of the virtual machine: loads the modules, then runs scripts from the
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
# A command is a script in base64 on one line. The answer is a line "ok N" or "error N"
# and N bytes of output. (Another path: busybox sh would prefer its own ip to iproute2's.)
exec 3<>/dev/virtio-ports/control
while read -r script <&3; do
	status=error
	/bin/sh -c "$(echo "$script" | base64 -d)" >/tmp/answer 2>&1 </dev/null 3<&- && status=ok
	echo "$status $(stat -c %s /tmp/answer)" >&3
	cat /tmp/answer >&3
done
poweroff -f
