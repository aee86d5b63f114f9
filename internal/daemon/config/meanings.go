package config

// meaning is the part of a key's description that its type does not show.
type meaning struct {
	unit, example, meaning string
	def                    string // default in words, where the value depends on the machine or on other keys
}

// meanings has all keys.
var meanings = map[string]meaning{
	"run_dir":    {"", "/run/roced", "folder of sockets, lock and log", "`/run/roced` of root, `$XDG_RUNTIME_DIR/roced` or `/tmp/roced-UID` of others"},
	"drain":      {"", "10s", "time that SIGTERM waits for programs, 0s to 1h", ""},
	"log.level":  {"", "debug", "`debug`, `info`, `warn` or `error`", ""},
	"log.format": {"", "json", "`text` or `json`", ""},

	"control.mode":   {"", "0660", "mode of the administration socket", ""},
	"control.users":  {"", "[alice, 1000]", "users, by name or number, that may administrate", "root and the daemon's user"},
	"control.groups": {"", "[rdma]", "groups whose members may administrate", ""},

	"metrics.listen": {"", "127.0.0.1:9464", "address and port for Prometheus", ""},
	"metrics.hosts":  {"", "[node1.example.org]", "names of this host in requests of Prometheus, besides `localhost`, addresses and the host's own name", ""},
	"web.listen":     {"", "127.0.0.1:9465", "address and port of the live page, or `unix:` and the path of a socket", ""},
	"web.control":    {"", "true", "the page can add and remove fault rules", ""},
	"web.hosts":      {"", "[lab.example.org]", "names of the page's host in browsers, besides `localhost` and addresses", ""},

	"limits.connections": {"", "64", "connections of a user on a NIC", ""},
	"limits.qps":         {"", "1024", "queue pairs of a user on a NIC", ""},
	"limits.cqs":         {"", "1024", "completion queues", ""},
	"limits.srqs":        {"", "256", "shared receive queues", ""},
	"limits.mrs":         {"", "4096", "memory regions", ""},
	"limits.mws":         {"", "4096", "memory windows", ""},
	"limits.pds":         {"", "256", "protection domains", ""},
	"limits.ahs":         {"", "4096", "address handles", ""},
	"limits.channels":    {"", "256", "completion channels", ""},
	"limits.memory":      {"bytes", "512M", "mapped memory, rings included", ""},
	"limits.descriptors": {"", "1000", "file descriptors that the daemon opens for a user", "half of the daemon's limit"},

	"privileges": {"", "drop", "`drop`: the daemon drops the capabilities for opening links once they are open; `keep`; `auto`: drop, except with a TAP", ""},

	"nics[].name":           {"", "rxe_a", "name of the NIC (letters, digits, `_ . -`); its verbs devices have `rxe_` before it unless it begins with `rxe`", "required"},
	"nics[].mac":            {"", "02:00:00:00:00:01", "Ethernet address; not for packet and xdp", "derived from machine, run directory and name"},
	"nics[].addresses":      {"", `[198.18.0.1/24, "fd00::1/64"]`, "addresses with prefix length; for tap and unix, others have those of the interface", ""},
	"nics[].vlans[].id":     {"", "10", "VLAN, 1 to 4094; for tap and unix", "required"},
	"nics[].gateways":       {"", "[198.18.0.254]", "next hops to other networks; for tap and unix", ""},
	"nics[].mtu":            {"bytes", "1500", "MTU of the link, 576 to 65521; for tap and unix", "4200, room for path MTU 4096"},
	"nics[].mlx5_gids":      {"", "true", "order of the GIDs as with mlx5: two entries for each address, first the link-local one, so that index 3 is the first other address", ""},
	"nics[].mrc_udp_port":   {"", "4971", "UDP port of a NIC whose only transport is `mrc`: 4791 or 4971, as that of its peers and of the NICs of its switch", "4791"},
	"nics[].profile":        {"", "irn", "transport: `rc`, `irn`, `melo`, `mp-rdma`, `eunomia` or `mrc`", "`rc`"},
	"nics[].profiles":       {"", "[rc, irn]", "more transports; each gets a verbs device of its own", ""},
	"nics[].switch":         {"", "local", "name of a switch: NICs of this daemon with the same switch exchange packets in memory; firewalls and `tc` of the host do not see these", ""},
	"nics[].shard":          {"", "one", "name of a shard of the `switch`, a thread for its NICs: packets between shards are copied once more", "one shard for all NICs of the switch"},
	"nics[].max_unacked":    {"packets", "4096", "unacknowledged packets of a queue pair", "no limit of its own"},
	"nics[].write_segments": {"", "single", "packets of an RC WRITE: `standard`, one request; `single`, a request for each packet, so that all have one length and need half as many system calls", "`standard`"},
	"nics[].poll":           {"", "busy", "time that an idle NIC polls before it sleeps; 0: not at all, `busy`: it never sleeps", ""},
	"nics[].faults":         {"", "['tx drop p=0.01 seed=7']", "fault rules from the start (roced-fault(7))", ""},

	"nics[].vlans[].addresses": {"", "[10.10.0.1/24]", "addresses of the NIC in the VLAN", "required"},

	"nics[].transports.PROFILE.reorder.name":    {"", "irn", "tracking of the receiver; other keys beside `name` are its parameters", "the profile's"},
	"nics[].transports.PROFILE.recovery.name":   {"", "irn", "loss recovery of the sender; other keys are its parameters", "the profile's"},
	"nics[].transports.PROFILE.paths.name":      {"", "spray", "path selection; other keys are its parameters", "the profile's"},
	"nics[].transports.PROFILE.congestion.name": {"", "dctcp", "congestion control instead of the NIC's; other keys are its parameters", ""},
	"nics[].transports.PROFILE.hold_last":       {"", "sender", "eunomia: the side that holds last packets of WRITEs: `receiver`, `sender` or `sender-idle`", "`receiver`"},

	"nics[].transports.PROFILE.ev_profiles.ID.name": {"", "single", "mrc: path selection of queue pairs whose programs choose the `ev_profile_id` ID; other keys are its parameters", ""},
	"nics[].transports.PROFILE.cc_profiles.ID.name": {"", "nscc", "mrc: congestion control of queue pairs whose programs choose the `cc_profile_id` ID; other keys are its parameters", ""},

	"nics[].port.type":         {"", "udp", "`tap`, `unix`, `packet`, `udp` or `xdp`", "required"},
	"nics[].port.netns":        {"", "/run/netns/blue", "network namespace of device or interface, as a path; not for unix", "the daemon's"},
	"nics[].port.device":       {"", "roce0", "tap: name of the device", "name of the NIC"},
	"nics[].port.bridge":       {"", "br0", "tap: bridge that the device joins", ""},
	"nics[].port.offload":      {"", "false", "super-frames, for tap, packet and udp. udp: `true` also towards peers that may be hardware, `false` never", "`true`; udp: towards other udp ports"},
	"nics[].port.interface":    {"", "eth0", "packet, xdp, udp: interface that the NIC shares with the kernel", ""},
	"nics[].port.address":      {"", "10.0.0.7", "udp: the only address of the NIC, instead of `interface`", ""},
	"nics[].port.check_source": {"", "false", "udp: take packets of a connected peer on this host only from its UDP source port; transports with one path", "`true`"},
	"nics[].port.mode":         {"", "generic", "xdp: place of the program: `native`, `generic` or `auto`", "`auto`"},
	"nics[].port.copy":         {"", "zerocopy", "xdp: transfer of frames: `copy`, `zerocopy` or `auto`", "`auto`"},
	"nics[].port.queues":       {"", "4", "xdp: receive queues that the port serves, at most 256", "all"},
	"nics[].port.local":        {"", "/run/roced/a", "unix: socket of this end; a relative path lies in `run_dir`", "required for unix"},
	"nics[].port.remote":       {"", "/run/roced/b", "unix: socket of the other end", "required for unix"},

	"nics[].port.planes[].device":    {"", "roce0", "tap: device of this plane, for a NIC with a port in each of 2 to 32 planes", "required for tap"},
	"nics[].port.planes[].bridge":    {"", "br0", "tap: bridge that the device of this plane joins", ""},
	"nics[].port.planes[].interface": {"", "eth0", "packet, xdp: interface of this plane", "required for packet and xdp"},
	"nics[].port.planes[].local":     {"", "/run/roced/a0", "unix: socket of this end in this plane", "required for unix"},
	"nics[].port.planes[].remote":    {"", "/run/roced/b0", "unix: socket of the other end in this plane", "required for unix"},

	"nics[].capture.file":    {"", "/var/lib/roced/a.pcapng", "file for all frames, as pcapng", ""},
	"nics[].capture.keep":    {"", "64MiB", "keep the newest frames only, about so many bytes, at least 1MiB; of two files, `a.1.pcapng` has the older ones", ""},
	"nics[].capture.snaplen": {"", "128", "bytes of each frame to keep, 64 to 65536; 0: all, so that ICRCs can be checked", ""},
	"nics[].access.mode":     {"", "0660", "mode of the NIC's sockets", ""},
	"nics[].access.users":    {"", "[alice]", "users that may use the NIC, by name or number", "all"},
	"nics[].access.groups":   {"", "[rdma]", "groups whose members may use the NIC", ""},

	"nics[].congestion.algorithm":    {"", "dcqcn", "congestion control; other keys of `congestion` are its parameters", ""},
	"nics[].congestion.cnp_interval": {"", "0s", "least time between two CNPs of a queue pair, up to 1s; 0s: no CNPs", ""},
	"nics[].congestion.cnp_dscp":     {"", "46", "DSCP of CNPs, 0 to 63", ""},

	"nics[].link.rate": {"bits per second", "25e9", "rate of the link, for transports and congestion control", "the paper's"},
	"nics[].link.rtt":  {"", "20us", "round-trip time with empty queues, 1us to 10s", "the paper's"},
	"nics[].link.mtu":  {"bytes", "4096", "path MTU that programs use, 256 to 4096", "the paper's"},

	"nics[].share.quantum":        {"bytes", "8K", "bytes of a queue pair's turn, 4K to 16M", "68K, slightly more than the longest super-frame"},
	"nics[].share.users[].user":   {"", `"1000"`, "user, by name or number", "required"},
	"nics[].share.users[].weight": {"", "3", "weight among the users of a class, 1 to 1000", ""},
	"nics[].share.users[].class":  {"", "1", "0 to 7: a higher class sends first and can starve lower ones", "0"},
}
