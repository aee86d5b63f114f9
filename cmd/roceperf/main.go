// Command roceperf measures and verifies RDMA between two NICs.
package main

import (
	"os"

	"roced.io/roced/internal/lab/perf"
)

func main() { os.Exit(perf.Main(os.Args[1:])) }
