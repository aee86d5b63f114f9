package programs

import "strings"

// built returns programs that have no packages in Debian 12. Each runs if it is in PATH; docs/results/known-problems.md has
// the tested versions and how to build them.
func built() []program {
	list := append(append(fabtests(), osu()...), rpma()...)
	list = append(append(list, mercury()...), append(uccl(), gasnet()...)...)
	return append(list, []program{
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
	}...)
}

// fabtests returns tests of libfabric that check the data. Unlike fi_pingpong, they listen on an address that an option gives.
func fabtests() (list []program) {
	for _, test := range []string{"fi_msg_pingpong -p verbs", "fi_rma_bw -e msg -o write -p verbs", "fi_rdm_tagged_pingpong -p 'verbs;ofi_rxm'"} {
		command := test + " -v -I 100 -S 65536"
		name, _, _ := strings.Cut(test, " ")
		list = append(list, program{group: "built from source", name: "fabtests " + test, need: name, says: "64k", ready: listensCM,
			server: command + " -s $SERVER", client: command + " -s $CLIENT $SERVER"})
	}
	return list
}

// osu returns benchmarks of MPI, which MPICH starts on one host and UCX connects over the NIC.
func osu() []program {
	const ranks = "UCX_NET_DEVICES=$DEV:1 UCX_TLS=rc,self MPIR_CVAR_NOLOCAL=1 mpirun.mpich -np "
	return []program{
		{group: "built from source", name: "osu_bw", need: "osu_bw", says: "4194304 ", moves: "64m", client: ranks + "2 $(command -v osu_bw) -x 1 -i 5"},
		{group: "built from source", name: "osu_allreduce, 4 ranks", need: "osu_allreduce", says: "65536 ", moves: "1m",
			client: ranks + "4 $(command -v osu_allreduce) -x 2 -i 5 -m 65536"},
	}
}

// rpma returns examples of librpma.
func rpma() []program {
	return []program{
		{group: "built from source", name: "librpma 05-flush-to-persistent", need: "rpma-05-server", says: "Translation: ", ready: listensCM,
			server: "exec rpma-05-server $SERVER 7204", client: "exec rpma-05-client $SERVER 7204"},
		{group: "built from source", name: "librpma 13-messages-ping-pong-with-srq", need: "rpma-13-server", says: "value received: 12", ready: listensCM,
			server: "exec rpma-13-server $SERVER 7204", client: "exec rpma-13-client $SERVER 7204 7 5"},
	}
}

// mercury returns tests of Mercury over libfabric. The server writes its address into a file when it is ready. The file of the
// client has the same text, because the port is fixed.
func mercury() (list []program) {
	const over, port = " -c ofi -p 'verbs;ofi_rxm' -f $DIR/ready -H ", ":15001"
	for _, p := range []program{
		{name: "na_lat", server: "na_perf_server", says: "4096 "},
		{name: "hg_test_rpc", server: "hg_test_server", says: "PASSED"},
		{name: "hg_test_bulk", server: "hg_test_server", says: "PASSED"},
	} {
		p.client = "echo 'ofi+verbs;ofi_rxm://'$SERVER" + port + " >$DIR/ready; exec " + p.name + over + "$CLIENT"
		p.group, p.need, p.server = "built from source", p.name, "exec "+p.server+over+"$SERVER"+port
		p.name, p.moves, p.ready, p.endless = "Mercury "+p.name, "4k", saysReady, true
		list = append(list, p)
	}
	return list
}

// uccl returns tests of UCCL's transport, whose server checks the data. Its processes do not end.
func uccl() (list []program) {
	for _, mode := range []string{"UC", "RC"} {
		const test = "UCCL_NUM_ENGINES=1 UCCL_PORT_ENTROPY=8 uccl-transport-test --perftype=basic --iterations=50 "
		set := map[string]string{"UC": "", "RC": "UCCL_RCMODE=1 "}[mode]
		list = append(list, program{group: "built from source", name: "UCCL transport_test, " + mode, need: "uccl-transport-test",
			says: "Iteration 49 done", moves: "3m", ready: listens(19999), endless: true,
			server: set + test + "--server",
			client: "{ " + set + test + "--serverip=$SERVER & echo $! >$DIR/pid; } | sed '/Iteration 49 done/q'; kill $(cat $DIR/pid)"})
	}
	return list
}

// gasnet returns tests of GASNet that check the data. Its launcher starts both ranks through a shell in place of ssh.
func gasnet() (list []program) {
	const launch = `printf '#!/bin/sh\nshift; exec setarch -R sh -c "$*"\n' >$DIR/ssh && chmod +x $DIR/ssh && ` +
		"GASNET_SSH_CMD=$DIR/ssh GASNET_SSH_SERVERS=localhost,$CLIENT GASNET_PHYSMEM_MAX=64M gasnetrun_ibv -spawner=ssh -n 2 -- $(command -v "
	for _, p := range []program{
		{name: "gasnet-testcore1", says: "passed 50/50", client: "50"}, {name: "gasnet-testlarge", says: "262144 byte", client: "20 262144"},
	} {
		p.client = launch + p.name + ") " + p.client
		p.group, p.need, p.moves = "built from source", p.name, "16k"
		p.name = "GASNet " + p.name[len("gasnet-"):] + ", 2 ranks"
		list = append(list, p)
	}
	return list
}

// erpc prepares a process of eRPC, which reads the addresses of all processes from a file of a fixed name.
const erpc = "mkdir -p $DIR/eRPC/scripts; cd $DIR/eRPC; printf '%s 31850 0\\n' $SERVER $CLIENT >scripts/autorun_process_file; " +
	"flags='--test_ms 3000 --num_server_processes 1 --num_processes 2 --numa_node 0 --numa_0_ports 0'; "

// mooncake starts Mooncake's benchmark. Without the variables it listens on a random port.
const mooncake = "export MC_MIN_RPC_PORT=15000 MC_MAX_RPC_PORT=15000; exec transfer_engine_bench --metadata_server=P2PHANDSHAKE " +
	"--protocol=rdma --device_name=$DEV --buffer_size=67108864 --batch_size=16 "
