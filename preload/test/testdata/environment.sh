# Tools that look at RDMA devices by sysfs and netlink find the device DEVICE.
set -eu
fail() { echo "$*"; exit 1; }
has() { want=$1; shift; "$@" >"$SCRATCH/out" 2>&1 || fail "$*: exit code $?: $(cat "$SCRATCH/out")"; grep -qE -- "$want" "$SCRATCH/out" || fail "$*: does not say '$want': $(cat "$SCRATCH/out")"; }
refused() { "$@" >"$SCRATCH/out" 2>&1 && fail "$*: succeeds"; grep -q "Operation not supported" "$SCRATCH/out" || fail "$*: $(cat "$SCRATCH/out")"; }

has "^0: $DEVICE: node_type ca (protocol roce )?fw 1.0.0 node_guid [0-9a-f:]{19} " rdma dev
has "^0: $DEVICE: " rdma dev show "$DEVICE"
has "link $DEVICE/1 state ACTIVE physical_state LINK_UP" rdma link
has "link $DEVICE/1 state ACTIVE" rdma link show "$DEVICE/1"
has '"ifname": *"'"$DEVICE"'",' rdma -j -p -d link
has 'caps: <' rdma -d dev
has "^netns shared" rdma system
has shared rdma -j system # as text in iproute2 6.1
has "^0: $DEVICE: pd 2 cq 1 qp 1 cm_id 1 mr 1" rdma res
has '"qp":1,' rdma -j res
has "link $DEVICE/1 lqpn $QPN type UD state RESET sq-psn 0 pdn [0-9]+ pid $PID comm" rdma res show qp
has "lqpn $QPN " rdma res show qp lqpn "$QPN"
has "dev $DEVICE cqn [0-9]+ cqe 15 users 2 pid $PID " rdma -d res show cq
has '"mrlen":4096,.*"pid":'"$PID," rdma -j res show mr
has "dev $DEVICE pdn [0-9]+ users 2 pid $PID " rdma res show pd
has "link $DEVICE/1 cm-idn [0-9]+ state LISTEN ps TCP pid $PID comm .* src-addr .*:7471" rdma res show cm_id
refused rdma dev set "$DEVICE" name rxe9
refused rdma statistic show

has "CA '$DEVICE'" ibstat
has "^$DEVICE$" ibstat -l
guid=$(ibstat "$DEVICE" | sed -n 's/.*Node GUID: //p')
has "Port GUID: $guid" ibstat "$DEVICE"
has "Port GUID: 0x[0-9a-f]*fffe[0-9a-f]*" ibstat "$DEVICE" 1
has "caps: <.*MEM_WINDOW" rdma -d dev show "$DEVICE"
has "Physical state: LinkUp" ibstat "$DEVICE" 1
has "Infiniband device '$DEVICE' port 1 status" ibstatus
has "link_layer:.*Ethernet" ibstatus "$DEVICE"
# The loop of Mellanox' show_gids.
has "^$DEVICE 1 0 .* RoCE v2" sh -c '
	for d in /sys/class/infiniband/*; do for p in "$d"/ports/*; do for g in "$p"/gids/*; do
		i=${g##*/}
		echo "${d##*/} ${p##*/} $i $(cat "$g") $(cat "$p/gid_attrs/types/$i") $(cat "$p/gid_attrs/ndevs/$i")"
	done; done; done'
