# "spdk.sh target" exports a RAM disk at address SERVER by NVMe-oF over RDMA. "spdk.sh initiator" writes to it and verifies.
set -eu
name=nqn.2026-11.test:disk
case $1 in
target)
	cat >"$DIR/spdk.json" <<END
{"subsystems": [
 {"subsystem": "bdev", "config": [
  {"method": "bdev_malloc_create", "params": {"name": "Malloc0", "num_blocks": 32768, "block_size": 512}}]},
 {"subsystem": "nvmf", "config": [
  {"method": "nvmf_create_transport", "params": {"trtype": "RDMA", "max_queue_depth": 32}},
  {"method": "nvmf_create_subsystem", "params": {"nqn": "$name", "allow_any_host": true, "serial_number": "1"}},
  {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "$name", "namespace": {"bdev_name": "Malloc0"}}},
  {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "$name", "listen_address":
   {"trtype": "RDMA", "adrfam": "IPv4", "traddr": "$SERVER", "trsvcid": "4420"}}}]}]}
END
	exec nvmf_tgt -m 1 --no-huge -s 512 --no-pci -r "$DIR/spdk.sock" --json "$DIR/spdk.json"
	;;
initiator)
	cat >"$DIR/spdk.json" <<END
{"subsystems": [{"subsystem": "bdev", "config": [
 {"method": "bdev_nvme_attach_controller", "params": {"name": "Nvme0", "trtype": "RDMA", "adrfam": "IPv4",
  "traddr": "$SERVER", "trsvcid": "4420", "subnqn": "$name"}}]}]}
END
	exec bdevperf -m 2 --no-huge -s 512 --no-pci -r "$DIR/spdk.sock" --json "$DIR/spdk.json" -q 16 -o 4096 -w verify -t 2
	;;
esac
