# Run a command on a machine that seems to have an RDMA device of the kernel, mlx5_9. argv: a scratch folder, the command.
# The caller provides a private mount namespace.
set -eu
scratch=$1
shift

# overlay DIR shows the entries of DIR and new ones.
overlay() {
	old=$scratch/old$1
	mkdir -p "$old"
	mount --rbind "$1" "$old"
	mount -t tmpfs -o mode=755 foreign "$1"
	for entry in "$old"/*; do
		name=${entry##*/}
		case $1 in
		/dev) ln -s "$entry" "/dev/$name" ;;
		*) mkdir "$1/$name" && mount --bind "$entry" "$1/$name" ;;
		esac
	done
}

# text FILE TEXT writes a file of sysfs.
text() { mkdir -p "${1%/*}" && echo "$2" >"$1"; }

mount --make-rprivate /
overlay /sys/class
overlay /dev
verbs=/sys/class/infiniband_verbs/uverbs0
device=/sys/class/infiniband/mlx5_9
mkdir -p /dev/infiniband
mknod /dev/infiniband/uverbs0 c 231 192
mknod /dev/infiniband/uverbs9 c 231 201
mknod /dev/infiniband/umad0 c 231 0
text /sys/class/infiniband_verbs/abi_version 6
for n in 0 9; do
	verbs=/sys/class/infiniband_verbs/uverbs$n
	text $verbs/ibdev mlx5_$n
	text $verbs/dev 231:$((192 + n))
	text $verbs/abi_version 1
	device=/sys/class/infiniband/mlx5_$n
	text $device/node_type "1: CA"
	text $device/node_guid 0002:c903:0000:000$n
	text $device/ports/1/state "4: ACTIVE"
	text $device/ports/1/gids/0 fe80:0000:0000:0000:0002:c903:0000:000$n
	text $device/ports/1/gid_attrs/types/0 "RoCE v2"
done
text /sys/class/infiniband_mad/umad0/ibdev mlx5_9
exec "$@"
