# "ceph.sh cluster" runs a Ceph cluster on the device DEV at address SERVER: a monitor, a manager and two OSDs. All their messages
# use RDMA. The file $DIR/ready says that the cluster works. "ceph.sh client" writes, reads and compares an object.
# There are twice as many receive buffers as a shared receive queue holds (ms_async_rdma_receive_queue_len, 4096). With fewer than the
# queue holds, receivers starve. The manager loads one of its modules only, because all of them take half a minute.
set -eu
conf=$DIR/ceph.conf
fsid=8d5b7ab4-6b2f-4b0b-9a4f-0d0c5a6f1e34
cat >"$conf" <<END
[global]
fsid = $fsid
mon_host = v2:$SERVER:3300/0
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_bind_msgr1 = false
ms_type = async+rdma
ms_async_rdma_device_name = $DEV
ms_async_rdma_buffer_size = 16384
ms_async_rdma_receive_buffers = 8192
ms_async_rdma_send_buffers = 512
run_dir = $DIR
log_file = $DIR/\$name.log
admin_socket = $DIR/\$name.\$pid.asok
pid_file =
setuser =
setgroup =
crash_dir = $DIR
mgr_module_path = $DIR/modules
osd_objectstore = memstore
osd_pool_default_size = 2
osd_crush_chooseleaf_type = 0
END
export CEPH_CONF=$conf
case $1 in
client)
	head -c 4194304 /dev/urandom >"$DIR/object"
	rados -p data put object "$DIR/object"
	rados -p data get object "$DIR/copy"
	cmp "$DIR/object" "$DIR/copy"
	echo all is well
	;;
cluster)
	monmaptool --create --fsid $fsid --addv a "[v2:$SERVER:3300]" "$DIR/monmap"
	mkdir -p "$DIR/mon" "$DIR/mgr" "$DIR/osd0" "$DIR/osd1" "$DIR/modules"
	ln -s /usr/share/ceph/mgr/mgr_*.py /usr/share/ceph/mgr/status "$DIR/modules"
	ceph-mon -i a --mkfs --monmap "$DIR/monmap" --mon-data "$DIR/mon" --public-addr "$SERVER"
	ceph-mon -i a --mon-data "$DIR/mon" --public-addr "$SERVER" -f &
	ceph-mgr -i x --mgr-data "$DIR/mgr" --public-addr "$SERVER" -f &
	for i in 0 1; do
		ceph osd create
		ceph-osd -i $i --mkfs --osd-data "$DIR/osd$i" --public-addr "$SERVER"
		ceph-osd -i $i --osd-data "$DIR/osd$i" --public-addr "$SERVER" --cluster-addr "$SERVER" -f &
		ceph osd crush add osd.$i 1 root=default host=h
	done
	ceph osd pool create data 8 8
	until ceph pg stat | grep -q '8 active+clean'; do sleep 1; done
	touch "$DIR/ready"
	wait
	;;
esac
