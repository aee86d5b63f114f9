# Common tools find the device DEVICE where a kernel shows it, and print no errors.
set -eu
ib=/sys/class/infiniband
fail() { echo "$*"; exit 1; }
quiet() { "$@" >/dev/null 2>"$SCRATCH/err" || fail "$*: exit code $?"; test ! -s "$SCRATCH/err" || fail "$*: $(cat "$SCRATCH/err")"; }
again() { for _ in 1 2 3; do "$@" 2>/dev/null && return; done; "$@"; }
says() { want=$1; shift; got=$("$@") || fail "$*: exit code $?"; test "$got" = "$want" || fail "$*: says '$got', not '$want'"; }

says "$DEVICE" ls $ib
says "1: CA" cat $ib/"$DEVICE"/node_type
says "$ib/$DEVICE/ports/1/state" find $ib -name state
says "$ib/$DEVICE" echo $ib/*
says directory stat -c %F $ib/"$DEVICE"
says "character special file" stat -c %F /dev/infiniband/uverbs0
says "$DEVICE" sh -c "cd $ib && echo *"
quiet ls -lR $ib/
quiet ls -l /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm
quiet grep -r . $ib/"$DEVICE"/ports/1/counters
quiet cp -r $ib/"$DEVICE"/ports/1/gid_attrs "$SCRATCH/copy"
# Counters may change while it reads.
quiet again tar -cf "$SCRATCH/tar" -C $ib .
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
assert os.stat('/dev/infiniband/uverbs0').st_rdev == os.fstat(os.open('/dev/infiniband/uverbs0', os.O_RDWR)).st_rdev != 0
"
