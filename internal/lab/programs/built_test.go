package programs

// built returns programs that have no packages in Debian 12. Each runs if it is in PATH; docs/results/known-problems.md has
// the tested versions and how to build them.
func built() []program {
	return []program{
		{group: "built from source", name: "valkey-benchmark --rdma", need: "valkey-server", says: "GET", moves: "1m", ready: listensCM, endless: true,
			server: "valkey-server --port 0 --rdma-bind $SERVER --rdma-port 6379 --protected-mode no --save '' --dir $DIR",
			client: "valkey-benchmark --rdma -h $SERVER -p 6379 -t set,get -n 2000 -c 4 -d 1024"},
		{group: "built from source", name: "eRPC latency", need: "erpc-latency", says: "total samples", moves: "64k", ready: saysReady, endless: true,
			server: erpc + "touch $DIR/ready; exec erpc-latency $flags --process_id 0",
			client: erpc + "exec erpc-latency $flags --process_id 1"},
		{group: "built from source", name: "Mooncake transfer_engine_bench", need: "transfer_engine_bench", says: "Test completed", moves: "16m",
			ready: listens(15000), endless: true,
			server: mooncake + "--mode=target --local_server_name=$SERVER",
			client: mooncake + "--mode=initiator --local_server_name=$CLIENT --segment_id=$SERVER:15000 --operation=write --duration=2 --threads=2"},
		{group: "built from source", name: "SPDK bdevperf, NVMe-oF", need: "nvmf_tgt", says: "Total", moves: "1m", ready: listensCM, endless: true,
			server: "sh testdata/spdk.sh target", client: "sh testdata/spdk.sh initiator"},
	}
}

// erpc prepares a process of eRPC, which reads the addresses of all processes from a file of a fixed name.
const erpc = "mkdir -p $DIR/eRPC/scripts; cd $DIR/eRPC; printf '%s 31850 0\\n' $SERVER $CLIENT >scripts/autorun_process_file; " +
	"flags='--test_ms 3000 --num_server_processes 1 --num_processes 2 --numa_node 0 --numa_0_ports 0'; "

// mooncake starts Mooncake's benchmark. Without the variables it listens on a random port.
const mooncake = "export MC_MIN_RPC_PORT=15000 MC_MAX_RPC_PORT=15000; exec transfer_engine_bench --metadata_server=P2PHANDSHAKE " +
	"--protocol=rdma --device_name=$DEV --buffer_size=67108864 --batch_size=16 "
