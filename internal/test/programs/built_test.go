package programs

// built returns programs that have no packages in Debian 12. Each runs if it is in PATH; docs/results/known-problems.md has
// the tested versions and how to build them.
func built() []program {
	return []program{
		{group: "built from source", name: "valkey-benchmark --rdma", need: "valkey-server", says: "GET", moves: "1m", ready: listensCM, endless: true,
			server: "valkey-server --port 0 --rdma-bind $SERVER --rdma-port 6379 --protected-mode no --save '' --dir $DIR",
			client: "valkey-benchmark --rdma -h $SERVER -p 6379 -t set,get -n 2000 -c 4 -d 1024"},
	}
}
