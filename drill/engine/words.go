package engine

import "slices"

// variables are the names that each script has, with their meanings.
var variables = map[string]string{
	"P": "first PSN of the device's requests, random", "Q": "first PSN of the tester's requests, random",
	"tester.qpn": "0x11", "tester.id": "communication ID that no earlier run has used", "tester.vlan": "VLAN of the run, 0 for none",
	"tester.addr": "IP address of the tester, 4 or 16 bytes", "dut.addr": "IP address of the device", "other.addr": "IP address of no station",
	"second.addr": "IP address of the device that its queue pairs do not have, as need second demands",
}

// attributes are the attributes of the objects of a verb.
var attributes = map[string][]string{"qp": {"num"}, "mr": {"va", "lkey", "rkey"}, "mw": {"rkey"}}

// widths are the bits of the numeric keys that do not have 32. PSNs are taken modulo 2^24, sizes have bounds of their own.
var widths = map[int][]string{
	8: {"timeout", "retry", "rnr_retry", "min_rnr", "rd_atomic", "dest_rd_atomic", "sl", "tclass", "ttl", "resources", "depth", "cm_timeout", "cm_retries",
		"mpr", "mpr_dest", "linear", "exp", "type", "level"},
	16: {"pkey_index", "port", "vlan", "max_wimm", "max_wimm_dest", "reason"},
	64: {"wr", "remote", "compare", "swap", "add", "min", "max", "psn", "rqpsn", "size", "rsize"},
}

// width returns the bits of a numeric key.
func width(key string) int {
	for bits, keys := range widths {
		if slices.Contains(keys, key) {
			return bits
		}
	}
	return 32
}

// words are the words that keys, and arguments of verbs, may have.
var words = map[string][]string{
	"qp":      {"rc", "uc", "ud"},
	"fill":    {"count"},
	"without": {"sl", "mtu", "peer", "rqpsn", "psn", "timeout", "retry", "rnr_retry", "min_rnr", "rd_atomic", "dest_rd_atomic", "qkey", "pkey_index", "access"},
	"state":   {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"},
	"op": {"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW", "LOCAL_INV", "FLUSH", "ATOMIC_WRITE", "RECV",
		"RECV_RDMA_WITH_IMM"},
	"cqe": {"SUCCESS", "ERROR", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR",
		"REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_ABORT_ERR", "FATAL_ERR",
		"RESP_TIMEOUT_ERR", "GENERAL_ERR"},
	"event": {"QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CQ_ERR", "COMPLETION",
		"CONNECT_REQUEST", "CONNECT_RESPONSE", "ESTABLISHED", "REJECTED", "UNREACHABLE", "DISCONNECTED", "TIMEWAIT_EXIT"},
}

// defaults are the values of keys that a script does not name, by verb and key, or by key for all verbs that have it.
var defaults = map[string]string{
	"size": "64", "rsize": "64", "sges": "8", "qp.inline": "64", "mr.size": "4096", "srq.size": "16", "resize.size": "16", "srq.limit": "0", "fill": "zeros",
	"access": "l, w, r, a and b", "bind.access": "w, r and a", "type": "2", "flush.type": "1", "flush.level": "0",
	"pd": "that of all objects", "scq": "a queue of 256 entries", "rcq": "a queue of 256 entries", "state": "RTS",
	"sigall": "0", "mtu": "1024", "psn": "0", "rqpsn": "0, so a responder needs rqpsn=Q", "peer": "0x11", "timeout": "14",
	"retry": "7", "rnr_retry": "7", "min_rnr": "12", "rd_atomic": "4", "dest_rd_atomic": "4", "qkey": "0x11111111", "pkey_index": "0",
	"sl": "that of --sl, else 0", "tclass": "0", "ttl": "64", "flow": "0", "vlan": "that of --vlan, else none", "wr": "0", "signaled": "1",
	"solicited": "0", "fence": "0", "inline": "0", "remote": "0", "rkey": "0", "bind.rkey": "that of the window, plus 1",
	"compare": "0", "swap": "0", "add": "0", "len": "0", "port": "7471", "backlog": "16", "qpn": "2", "resources": "1", "depth": "1",
	"cm_timeout": "20", "udp": "0", "cm_retries": "15", "reason": "28", "modify.state": "unchanged", "limit": "0",
}

// defaultOf returns the default of a key of a verb, empty if it has none.
func defaultOf(verb, key string) string {
	if v := verbs[verb]; v.compare || v.local || verb == "counter" {
		return ""
	}
	if d, ok := defaults[verb+"."+key]; ok {
		return d
	}
	if verb == "modify" && key != "state" || verb == "mrc" {
		return ""
	}
	return defaults[key]
}
