# Common tools find the device DEVICE where a kernel shows it, and print no errors.
set -eu
ib=/sys/class/infiniband
fail() { echo "$*"; exit 1; }
quiet() { "$@" >/dev/null 2>"$SCRATCH/err" || fail "$*: exit code $?"; test ! -s "$SCRATCH/err" || fail "$*: $(cat "$SCRATCH/err")"; }
again() { for _ in 1 2 3; do "$@" 2>/dev/null && return; done; "$@"; }
says() { want=$1; shift; got=$("$@") || fail "$*: exit code $?"; test "$got" = "$want" || fail "$*: says '$got', not '$want'"; }

says "$DEVICE" ls $ib
says "1: CA" cat $ib/"$DEVICE"/node_type
says "$ib/$DEVICE/ports/1/state" find $ib/"$DEVICE"/ports -name state
pci=/sys/devices/pci0ced:00/0ced:00:00.0/0ced:01:00.0
says "../../devices/pci0ced:00/0ced:00:00.0/0ced:01:00.0/infiniband/$DEVICE" readlink $ib/"$DEVICE"
says "../../../0ced:01:00.0" readlink $ib/"$DEVICE"/device
says $pci readlink -f $ib/"$DEVICE"/device
says $pci realpath /sys/class/infiniband_verbs/uverbs0/device
says $pci realpath /sys/bus/pci/devices/0ced:01:00.0
says 0x0ced cat $pci/vendor
says 0x0001 cat $ib/"$DEVICE"/device/device
says 0x020000 cat /sys/bus/pci/devices/0ced:01:00.0/class
says "-1" cat $ib/"$DEVICE"/device/numa_node
says "PCI_SLOT_NAME=0ced:01:00.0" sed -n 4p $pci/uevent
says "8.0 GT/s PCIe" cat $pci/max_link_speed
says 16 cat $pci/max_link_width
says 0x0ced cat $pci/subsystem_vendor
says "$(cat /sys/devices/system/cpu/online)" cat $pci/local_cpulist
says 0x060400 cat $pci/../class
# The list of all PCI devices has the kernel's that are there, and no longer one that has left.
bus=/sys/bus/pci/devices
all=$({ LD_PRELOAD= ls $bus; printf '%s\n' 0ced:00:00.0 0ced:01:00.0; } 2>/dev/null | sort)
for list in "ls $bus" "ls $bus/" "find $bus/ -mindepth 1 | sed s,.*/,," "/usr/bin/python3 -c 'import os; print(*os.listdir(\"$bus\"), sep=\"\n\")'"; do
	ln -s nowhere "$SYSFS_PATH/bus/pci/devices/0000:ff:1f.7"
	says "$all" sh -c "$list | sort"
done
says "$all" sh -c "basename -a $bus/* | sort"
says 256 sh -c "wc -c <$bus/0ced:01:00.0/config"
says lo cat $ib/"$DEVICE"/ports/1/gid_attrs/ndevs/0
says 256 sh -c "ls $ib/$DEVICE/ports/1/gids | wc -l"
says "$DEVICE" ls $pci/infiniband
says "" ls $pci/net
quiet test -d "$(readlink -f $ib)"
says "$ib/$DEVICE" echo $ib/*
says "symbolic link" stat -c %F $ib/"$DEVICE"
says directory stat -Lc %F $ib/"$DEVICE"
says "character special file" stat -c %F /dev/infiniband/uverbs0
says "$DEVICE" sh -c "cd $ib && echo *"
quiet ls -lR $ib/
quiet ls -l /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm
quiet grep -r . $ib/"$DEVICE"/ports/1/counters
quiet cp -r $ib/"$DEVICE"/ports/1/gid_attrs "$SCRATCH/copy"
# Counters may change while it reads.
quiet again tar -cf "$SCRATCH/tar" -C $ib/"$DEVICE"/ports .
quiet test -c /dev/infiniband/uverbs0
quiet test -r /dev/infiniband/rdma_cm
quiet test -d $ib/"$DEVICE"/ports/1/gids
quiet readlink -f $ib/"$DEVICE"
quiet realpath $ib/"$DEVICE"
quiet /usr/bin/python3 -c "
import glob, os
assert glob.glob('$ib/*') == ['$ib/$DEVICE'], glob.glob('$ib/*')
assert os.listdir('$ib') == [e.name for e in os.scandir('$ib')] == ['$DEVICE']
assert next(os.walk('$ib'))[1] == ['$DEVICE']
assert os.path.realpath('$ib/$DEVICE/device') == '$pci'
assert glob.glob('$pci/infiniband/*') == ['$pci/infiniband/$DEVICE']
assert open('$pci/infiniband/$DEVICE/ports/1/counters/port_xmit_packets').read() == open('$ib/$DEVICE/ports/1/counters/port_xmit_packets').read()
assert os.stat('/dev/infiniband/uverbs0').st_rdev == os.fstat(os.open('/dev/infiniband/uverbs0', os.O_RDWR)).st_rdev != 0
"
