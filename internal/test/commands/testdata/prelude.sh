# The shell of a page: SOURCE is the repository, BUILT the folder of the programs. It begins in a clone, in a network with
# an interface eth0, and with a /run of its own. With PACKAGE, the prefix of an installation, it begins in a copy of the examples.
set -e
exec 2>&1
scratch=$PWD said=$PWD/said
mount -t tmpfs none /run
ip link set lo up
ip link add eth0 type veth peer name wire
ip addr add 198.18.0.7/24 dev eth0
ip link set eth0 up
ip link set wire up
ip route add default via 198.18.0.1

export HOME=$scratch GOCACHE=${GOCACHE:-$(go env GOCACHE)} GOMODCACHE=${GOMODCACHE:-$(go env GOMODCACHE)} GOWORK=off GOPROXY=off GOFLAGS="-mod=mod -trimpath" CGO_ENABLED=0
export DESTDIR=$scratch/installed # of make install
unset ROCED_RUN_DIR XDG_RUNTIME_DIR
mkdir "$scratch/tools"
ln -s "$SOURCE" "$scratch/URL"
tool() { cat >"$scratch/tools/$1"; chmod +x "$scratch/tools/$1"; }
printf '#!/bin/sh\nexec "$@"\n' | tool sudo
tool xdg-open <<'END'
#!/bin/sh
exec curl -sfo /dev/null "$(sed -n 's/.*url=\([^"]*\)".*/\1/p' "$1")"
END
printf '#!/bin/sh\nexec ibv_devices\n' | tool PROGRAM
export PATH=$scratch/tools:${PACKAGE:-$BUILT}${PACKAGE:+/bin}:$PATH

if [ -n "${PACKAGE-}" ]; then
	roced examples roced
	git init -q roced
	git -C roced add -A
	git -C roced -c user.name=t -c user.email=t@localhost commit -qm examples
else
	git clone -q --shared "$SOURCE" roced
	mkdir roced/bin
	ln -s "$BUILT"/* roced/bin/
fi
cd roced

# A second before a client starts is for the server of perftest or UCX to listen (ports 18515, 13337), here also on a busy
# machine.
sleep() {
	[ "$1" = 1 ] || { command sleep "$1"; return; }
	until grep -qE ':(4853|3419) .* 0A ' /proc/[0-9]*/net/tcp /proc/[0-9]*/net/tcp6 2>/dev/null; do command sleep 0.05; done
}

# note: records a command that has been started in the background.
started=()
note() {
	[ "$!" = "$noted" ] || started+=("$!")
	noted=$!
}

# wait: the page judges the commands that it waits for. Some versions of bash forget their status, others do not.
wait() {
	[ $# != 0 ] || started=() noted=$!
	builtin wait "$@"
}

# traffic: sends packets while a command runs until Ctrl-C. A page can replace it.
traffic() { :; }

# remote: a NIC on the other end of eth0's cable, veth0 in the network namespace left.
remote() {
	mkdir -p /run/netns
	ip netns add left
	ip link set wire netns left name veth0
	ip -n left addr add 198.18.0.8/24 dev veth0
	ip -n left link set veth0 up
	ip netns exec left "$BUILT/roced" up veth0 --port packet --run-dir "$scratch/remote"
}

# pair: two NICs for the traffic of a page.
pair() {
	remote
	roced up eth0 --port packet --run-dir "$scratch/local"
}

# on_b COMMAND: runs a command on the other machine of a page, whose NIC is that of remote.
on_b() { eval "${1//ib_write_bw -d mlx5_0/ip netns exec left $BUILT/rocectl --run-dir $scratch/remote exec -- ib_write_bw}"; }

# send FROM TO: moves 64 messages of 64 KiB between the NICs of pair.
send() {
	local job
	rm -f "$scratch/meet"
	roceperf write-bw --run-dir "$scratch/$2" -s 64k -n 64 -q 1 --verify --oob "unix:$scratch/meet" >/dev/null &
	job=$!
	until [ -e "$scratch/meet" ]; do command sleep 0.05; done
	roceperf write-bw --run-dir "$scratch/$1" -s 64k -n 64 -q 1 --verify --oob "unix:$scratch/meet" peer >/dev/null
	builtin wait "$job"
}

# effect CONDITION: waits for a condition that a command promises.
effect() {
	for _ in $(seq 300); do
		! eval "$1" || return 0
		command sleep 0.1
	done
	echo "no effect: $1"
	return 1
}

# interrupt COMMAND: runs a command until its first output, and then presses Ctrl-C.
interrupt() {
	rm -f "$scratch/said" # of an earlier command, which would end this one before it can be interrupted
	set -m # a process group of its own, which gets SIGINT
	eval "$1" >"$scratch/said" 2>&1 &
	set +m
	local job=$!
	until [ -s "$scratch/said" ] || ! kill -0 "$job" 2>/dev/null; do command sleep 0.05; done
	traffic
	kill -INT -- "-$job" 2>/dev/null || true
	code=0
	wait "$job" || code=$?
	noted=$!
	cat "$scratch/said"
	[ $code = 0 ] || [ $code = 130 ]
}

# leave: fails if a command in the background has failed, or the page has changed the clone.
leave() {
	for job in "${started[@]}"; do
		kill -0 "$job" 2>/dev/null || wait "$job" || { echo "a command in the background failed"; exit 1; }
	done
	changed=$(git -C "$scratch/roced" status --porcelain)
	[ -z "$changed" ] || { echo "the page changes the clone: $changed"; exit 1; }
}
