-- Wireshark dissector of roced: the extended transports and MRC (docs/reference/wire.md), congestion
-- notification packets by name, and a verdict on the invariant CRC of every RoCEv2
-- packet. What Flor (docs/design/flor.md) says in packets, if it is told which queue pairs carry it.
--
--   tshark -X lua_script:configs/wireshark/roced.lua -r out.pcapng -T fields -e roced.icrc
--   tshark -X lua_script:configs/wireshark/roced.lua -o roced.flor:all -r out.pcapng
--
-- or copy it to the folder of personal Lua plugins that Wireshark names under
-- Help > About > Folders. Standard packets stay with Wireshark's own dissector.

local PORTS = {[4791] = true, [4971] = true} -- RoCEv2; another one of MRC
local bits = bit32 or bit

local roced = Proto("roced", "RoCEv2 of roced")

roced.prefs.icrc = Pref.bool("Check the invariant CRC", true, "Slow in captures of many long packets")

roced.prefs.flor = Pref.string("Queue pairs that carry Flor", "",
	"all, or the numbers to which its packets go, with commas between: nothing in a packet tells")

local profiles = {[0] = "rc", [1] = "irn", [2] = "melo", [3] = "mp-rdma", [4] = "eunomia"}

-- The operations of RC, by the low five bits of the opcode, with their headers:
-- F = FETH, R = RETH, A = AtomicETH, K = AETH, O = original value, I = immediate, V = rkey to
-- invalidate.
local operations = {
	[0x00] = {"SEND_FIRST", ""}, [0x01] = {"SEND_MIDDLE", ""}, [0x02] = {"SEND_LAST", ""},
	[0x03] = {"SEND_LAST_WITH_IMMEDIATE", "I"}, [0x04] = {"SEND_ONLY", ""}, [0x05] = {"SEND_ONLY_WITH_IMMEDIATE", "I"},
	[0x06] = {"RDMA_WRITE_FIRST", "R"}, [0x07] = {"RDMA_WRITE_MIDDLE", "R"}, [0x08] = {"RDMA_WRITE_LAST", "R"},
	[0x09] = {"RDMA_WRITE_LAST_WITH_IMMEDIATE", "RI"}, [0x0a] = {"RDMA_WRITE_ONLY", "R"},
	[0x0b] = {"RDMA_WRITE_ONLY_WITH_IMMEDIATE", "RI"}, [0x0c] = {"RDMA_READ_REQUEST", "R"},
	[0x0d] = {"RDMA_READ_RESPONSE_FIRST", "K"}, [0x0e] = {"RDMA_READ_RESPONSE_MIDDLE", ""},
	[0x0f] = {"RDMA_READ_RESPONSE_LAST", "K"}, [0x10] = {"RDMA_READ_RESPONSE_ONLY", "K"},
	[0x11] = {"ACKNOWLEDGE", "K"}, [0x12] = {"ATOMIC_ACKNOWLEDGE", "KO"}, [0x13] = {"CMP_SWAP", "A"}, [0x14] = {"FETCH_ADD", "A"},
	[0x16] = {"SEND_LAST_INV", "V"}, [0x17] = {"SEND_ONLY_INV", "V"}, [0x1c] = {"FLUSH", "FR"},
	[0x1d] = {"ATOMIC_WRITE", "R"}, [0x1f] = {"READ_ACKNOWLEDGE", "K"},
}

-- MRC: M = METH, T = TSETH if the BTH says so, S = SETH, C = CC_STATE, N = NETH, P = PETH, Q = ERTH, E = EETH.
local mrc = {
	[0xc6] = {"RDMA_WRITE_FIRST", "MTR"}, [0xc7] = {"RDMA_WRITE_MIDDLE", "MTR"}, [0xc8] = {"RDMA_WRITE_LAST", "MTR"},
	[0xc9] = {"RDMA_WRITE_LAST_WITH_IMMEDIATE", "MTRI"}, [0xca] = {"RDMA_WRITE_ONLY", "MTR"},
	[0xcb] = {"RDMA_WRITE_ONLY_WITH_IMMEDIATE", "MTRI"}, [0xd1] = {"ACKNOWLEDGE", "K"}, [0xd8] = {"ENDPOINT_REQUEST", "Q"},
	[0xd9] = {"ENDPOINT_RESPONSE", "E"}, [0xdc] = {"SACK", "SC"}, [0xdd] = {"NACK", "N"}, [0xde] = {"PROBE", "P"},
}

local extended, opcodeNames = {}, {}
for op, what in pairs(operations) do
	extended[0xe0 + op] = what
	opcodeNames[0xe0 + op] = "EXT_" .. what[1]
end
for op, what in pairs(mrc) do
	opcodeNames[op] = "MRC_" .. what[1]
end

local f = {}
local function field(name, make, title, ...)
	f[name] = make("roced." .. name, title, ...)
end

field("icrc", ProtoField.string, "Invariant CRC")
field("opcode", ProtoField.uint8, "Opcode", base.HEX, opcodeNames)
field("solicited", ProtoField.bool, "Solicited event", 8, nil, 0x80)
field("migreq", ProtoField.bool, "Migration state", 8, nil, 0x40)
field("padcnt", ProtoField.uint8, "Pad count", base.DEC, nil, 0x30)
field("tver", ProtoField.uint8, "Transport header version", base.DEC, nil, 0x0f)
field("pkey", ProtoField.uint16, "Partition key", base.HEX)
field("fecn", ProtoField.bool, "Forward congestion notification", 8, nil, 0x80)
field("becn", ProtoField.bool, "Backward congestion notification", 8, nil, 0x40)
field("destqp", ProtoField.uint24, "Destination queue pair", base.HEX)
field("ackreq", ProtoField.bool, "Acknowledgement request", 8, nil, 0x80)
field("psn", ProtoField.uint24, "Packet sequence number", base.DEC)

field("version", ProtoField.uint8, "Version", base.DEC, nil, 0xf0)
field("length", ProtoField.uint8, "Length in words", base.DEC, nil, 0x0f)
field("profile", ProtoField.uint8, "Profile", base.DEC, profiles)
field("flags", ProtoField.uint16, "Flags", base.HEX)

-- Flags without and with a field, in the order of the wire. The fields' reserved byte
-- comes first; that of the path has two.
local marks = {
	{"retx", "Retransmission", 0x0001}, {"sync", "Synchronise", 0x0002}, {"tail", "Last packet of the connection", 0x0004},
	{"ece", "Congestion experienced", 0x0008}, {"refused", "Refused", 0x0010},
}
for _, m in ipairs(marks) do
	field(m[1], ProtoField.bool, m[2], 16, nil, m[3])
end
local words = {
	{"message", "Message sequence number", 0x0080}, {"offset", "Packets of the message before (iPSN)", 0x0080},
	{"recv_wqe_sn", "recv_WQE_SN", 0x0100}, {"read_wqe_sn", "read_WQE_SN", 0x0200}, {"head", "First PSN of the connection", 0x0400},
	{"sack", "Selectively acknowledged PSN", 0x0800},
}
for _, w in ipairs(words) do
	field(w[1], ProtoField.uint24, w[2], base.DEC)
end
field("path", ProtoField.uint16, "Virtual path (UDP source port)", base.DEC)
local PATH, HOLES, OWN, KNOWN = 0x1000, {0x2000, 0x4000, 0x8000}, 0x0040, 0xffdf
field("own", ProtoField.bytes, "Bytes of the profile's own")
field("hole", ProtoField.none, "Hole")
field("hole.start", ProtoField.uint24, "First missing PSN", base.DEC)
field("hole.len", ProtoField.uint24, "Missing packets", base.DEC)

field("flush.type", ProtoField.uint32, "Placement type of a FLUSH", base.HEX, nil, 0x0f)
field("flush.level", ProtoField.uint32, "Selectivity level of a FLUSH", base.DEC, {[0] = "range", [1] = "region"}, 0x30)
field("va", ProtoField.uint64, "Virtual address", base.HEX)
field("rkey", ProtoField.uint32, "Remote key", base.HEX)
field("dmalen", ProtoField.uint32, "DMA length", base.DEC)
field("swapadd", ProtoField.uint64, "Swap value or addend", base.DEC)
field("compare", ProtoField.uint64, "Compare value", base.DEC)
field("syndrome", ProtoField.uint8, "AETH syndrome", base.HEX)
field("msn", ProtoField.uint24, "Message sequence number", base.DEC)
field("original", ProtoField.uint64, "Original value of an atomic operation", base.DEC)
field("imm", ProtoField.uint32, "Immediate data", base.HEX)
field("invrkey", ProtoField.uint32, "Remote key to invalidate", base.HEX)
field("payload", ProtoField.bytes, "Payload")
field("wirecrc", ProtoField.uint32, "Invariant CRC on the wire", base.HEX)

local reasons = {[1] = "TRIMMED", [2] = "TRIMMED_LASTHOP", [6] = "NO_BITMAP", [7] = "NO_PKT_BUFFER", [10] = "NO_RESOURCE",
	[11] = "PSN_OOR_WINDOW", [25] = "UNEXP_EVENT"}
local endpointOps = {[0] = "port status", [1] = "EV probe"}
field("mrc.retx", ProtoField.bool, "Retransmission", 8, nil, 0x20)
field("mrc.stamped", ProtoField.bool, "Timestamp present", 8, nil, 0x10)
field("mrc.trimmed", ProtoField.bool, "Trimmed")
field("mrc.rqmsn", ProtoField.uint16, "Number among the WRITEs with immediate data", base.DEC)
field("mrc.msn", ProtoField.uint16, "Message sequence number", base.DEC)
field("mrc.timestamp", ProtoField.uint16, "Timestamp", base.DEC)
field("mrc.coarse", ProtoField.bool, "Unit of the timestamp is not 128 ns", 8, nil, 0x80)
field("mrc.format", ProtoField.uint8, "Format of the timestamp", base.DEC, nil, 0x0f)
field("mrc.mark", ProtoField.uint8, "Path feedback", base.DEC, {[0] = "none", [1] = "skip once", [2] = "always skip"}, 0x60)
field("mrc.probe_reply", ProtoField.bool, "Answers a probe", 8, nil, 0x02)
field("mrc.probe_id", ProtoField.uint16, "Probe", base.DEC)
field("mrc.ack_psn", ProtoField.uint24, "PSN of the packet that triggered the SACK", base.DEC)
field("mrc.entropy", ProtoField.uint32, "Entropy value", base.HEX)
field("mrc.src_context", ProtoField.uint16, "Source context (spdcid)", base.HEX)
field("mrc.dest_context", ProtoField.uint16, "Destination context (dpdcid)", base.HEX)
field("mrc.cack", ProtoField.uint24, "Cumulatively acknowledged PSN", base.DEC)
field("mrc.nack", ProtoField.uint24, "Refused PSN", base.DEC)
field("mrc.cc_type", ProtoField.uint8, "Format of the congestion control state", base.DEC, nil, 0xf0)
field("mrc.cc_flags", ProtoField.uint8, "Flags of the congestion control state", base.HEX, nil, 0x0f)
field("mrc.mpr", ProtoField.uint8, "Maximum PSN range in 128 PSNs", base.DEC)
field("mrc.base", ProtoField.uint24, "PSN of the bitmap's lowest bit", base.DEC)
field("mrc.bitmap", ProtoField.uint64, "Bitmap", base.HEX)
field("mrc.ooo_count", ProtoField.uint16, "Out-of-order count", base.DEC, nil, 0x7fff)
field("mrc.restore", ProtoField.bool, "Restore the window", 8, nil, 0x80)
field("mrc.penalty", ProtoField.uint8, "Window penalty", base.DEC, nil, 0x7f)
field("mrc.received", ProtoField.uint24, "Received bytes in 256 bytes", base.DEC)
field("mrc.reason", ProtoField.uint8, "Reason", base.HEX, reasons)
field("mrc.vendor", ProtoField.uint8, "Vendor information", base.HEX)
field("mrc.op", ProtoField.uint8, "Endpoint operation", base.DEC, endpointOps, 0x03)
field("mrc.response_op", ProtoField.uint8, "Endpoint operation", base.DEC, endpointOps, 0x0c)
field("mrc.ports", ProtoField.uint32, "Reachable ports", base.HEX)

-- Flor (go doc roced/flor/engine: Header, Imm, Ack)
local kinds = {[1] = "message", [2] = "request", [3] = "grant", [4] = "rewrite"}
field("flor.hint", ProtoField.bool, "Hint: last in the window")
field("flor.kind", ProtoField.uint8, "Kind", base.DEC, kinds)
field("flor.rn", ProtoField.uint32, "Reliable sequence number", base.DEC)
field("flor.gn", ProtoField.uint64, "Global sequence number", base.DEC)
field("flor.message", ProtoField.uint32, "Message", base.DEC)
field("flor.chunk", ProtoField.uint32, "Chunk begins at unit", base.DEC)
field("flor.length", ProtoField.uint32, "Length of the message", base.DEC)
field("flor.offset", ProtoField.uint32, "Chunk begins at byte", base.DEC)
field("flor.tag", ProtoField.uint32, "Tag", base.HEX)
field("flor.key", ProtoField.uint32, "Key", base.HEX)
field("flor.addr", ProtoField.uint64, "Address", base.HEX)
field("flor.ack.qp", ProtoField.uint32, "Acknowledged queue pair", base.HEX)
field("flor.ack.sends", ProtoField.uint32, "Which are SENDs", base.HEX)
field("flor.ack.least", ProtoField.uint64, "Least global sequence number", base.DEC)
field("flor.ack.delay", ProtoField.uint64, "T3'-T2 in ns", base.DEC)

roced.fields = f

local e_malformed = ProtoExpert.new("roced.malformed", "Malformed extension header", expert.group.MALFORMED, expert.severity.ERROR)
local e_icrc = ProtoExpert.new("roced.icrc.bad", "Bad invariant CRC", expert.group.CHECKSUM, expert.severity.ERROR)
local e_flor = ProtoExpert.new("roced.flor.malformed", "Not of Flor's format", expert.group.MALFORMED, expert.severity.ERROR)
roced.experts = {e_malformed, e_icrc, e_flor}

-- reader walks over a packet and adds what it finds to a tree.
local function reader(tvb, tree, at)
	return {
		at = at, tree = tree,
		add = function(self, name, skip, n)
			self.tree:add(f[name], tvb(self.at + skip, n))
			self.at = self.at + skip + n
		end,
		left = function(self) return tvb:len() - 4 - self.at end,
	}
end

local function addBTH(tvb, tree, more)
	local t = tree:add(tvb(0, 12), "Base transport header")
	t:add(f.opcode, tvb(0, 1))
	t:add(f.solicited, tvb(1, 1))
	t:add(f.migreq, tvb(1, 1))
	t:add(f.padcnt, tvb(1, 1))
	t:add(f.tver, tvb(1, 1))
	t:add(f.pkey, tvb(2, 2))
	t:add(f.fecn, tvb(4, 1))
	t:add(f.becn, tvb(4, 1))
	t:add(f.destqp, tvb(5, 3))
	t:add(f.ackreq, tvb(8, 1))
	for _, name in ipairs(more or {}) do
		t:add(f[name], tvb(8, 1))
	end
	t:add(f.psn, tvb(9, 3))
end

-- addXETH adds the extension header and returns where it ends and a summary, or nil
-- and what is wrong.
local function addXETH(tvb, tree)
	if tvb:len() < 20 then
		return nil, "too short"
	end
	local len, flags = bits.band(tvb(12, 1):uint(), 15) * 4, tvb(14, 2):uint()
	local t = tree:add(tvb(12, math.min(math.max(len, 4), tvb:len() - 12)), "Extension header")
	t:add(f.version, tvb(12, 1))
	t:add(f.length, tvb(12, 1))
	t:add(f.profile, tvb(13, 1))
	local ft = t:add(f.flags, tvb(14, 2))
	local text = profiles[tvb(13, 1):uint()] or "?"
	for _, m in ipairs(marks) do
		ft:add(f[m[1]], tvb(14, 2))
		if bits.band(flags, m[3]) ~= 0 then
			text = text .. " " .. m[1]
		end
	end
	if bits.rshift(tvb(12, 1):uint(), 4) ~= 2 then
		return nil, "unknown version"
	end
	if bits.band(flags, KNOWN) ~= flags or bits.band(flags, OWN) ~= 0 and (flags >= 0x2000 or tvb(13, 1):uint() < 128) then
		return nil, "unknown flags"
	end
	local ends = 12 + len
	if len < 4 or ends + 4 > tvb:len() then
		return nil, "bad length"
	end
	local r = reader(tvb, t, 16)
	local function need(n) return r.at + n <= ends end
	for _, w in ipairs(words) do
		if bits.band(flags, w[3]) ~= 0 then
			if not need(4) then
				return nil, "shorter than its fields"
			end
			text = text .. " " .. w[1] .. "=" .. tvb(r.at + 1, 3):uint()
			r:add(w[1], 1, 3)
		end
	end
	if bits.band(flags, PATH) ~= 0 then
		if not need(4) then
			return nil, "shorter than its fields"
		end
		text = text .. " path=" .. tvb(r.at + 2, 2):uint()
		r:add("path", 2, 2)
	end
	for _, h in ipairs(HOLES) do
		if bits.band(flags, h) ~= 0 then
			if not need(8) then
				return nil, "shorter than its fields"
			end
			local start, n = tvb(r.at + 1, 3):uint(), tvb(r.at + 5, 3):uint()
			r.tree = t:add(f.hole, tvb(r.at, 8)):set_text("Hole: " .. n .. " from PSN " .. start)
			r:add("hole.start", 1, 3)
			r:add("hole.len", 1, 3)
			text = text .. " hole=" .. start .. "+" .. n
		end
	end
	if bits.band(flags, OWN) ~= 0 then
		local n = ends - r.at
		if n < 4 or n > 24 then
			return nil, "bad length of its own bytes"
		end
		r:add("own", 0, n)
	end
	return ends, text
end

-- stamp returns the fields of a timestamp at at.
local function stamp(at)
	return {"mrc.timestamp", at, 2}, {"mrc.coarse", at + 2, 1}, {"mrc.format", at + 3, 1}
end

-- headers has the title and length of the headers, and their fields with offset and length.
local headers = {
	F = {"FLUSH extended transport header", 4, {{"flush.type", 0, 4}, {"flush.level", 0, 4}}},
	R = {"RDMA extended transport header", 16, {{"va", 0, 8}, {"rkey", 8, 4}, {"dmalen", 12, 4}}},
	A = {"Atomic extended transport header", 28, {{"va", 0, 8}, {"rkey", 8, 4}, {"swapadd", 12, 8}, {"compare", 20, 8}}},
	K = {"ACK extended transport header", 4, {{"syndrome", 0, 1}, {"msn", 1, 3}}},
	O = {"Atomic ACK extended transport header", 8, {{"original", 0, 8}}},
	I = {"Immediate data", 4, {{"imm", 0, 4}}},
	V = {"Invalidate extended transport header", 4, {{"invrkey", 0, 4}}},
	M = {"Message extended transport header", 4, {{"mrc.rqmsn", 0, 2}, {"mrc.msn", 2, 2}}},
	T = {"Timestamp extended transport header", 4, {stamp(0)}},
	S = {"SACK extended transport header", 28, {{"mrc.mark", 1, 1}, {"mrc.probe_reply", 1, 1}, {"mrc.entropy", 4, 4},
		{"mrc.src_context", 8, 2}, {"mrc.dest_context", 10, 2}, {"mrc.cack", 13, 3}, {"mrc.cc_type", 16, 1}, {"mrc.cc_flags", 16, 1},
		{"mrc.mpr", 17, 1}, {"mrc.bitmap", 20, 8}}},
	C = {"Congestion control state", 8, {{"mrc.timestamp", 0, 2}, {"mrc.ooo_count", 2, 2}, {"mrc.restore", 4, 1}, {"mrc.penalty", 4, 1},
		{"mrc.received", 5, 3}}},
	N = {"NACK extended transport header", 20, {{"mrc.reason", 2, 1}, {"mrc.vendor", 3, 1}, {"mrc.entropy", 4, 4},
		{"mrc.src_context", 8, 2}, {"mrc.dest_context", 10, 2}, {"mrc.nack", 13, 3}, {"mrc.cc_type", 16, 1}, {"mrc.cc_flags", 16, 1},
		{"mrc.timestamp", 18, 2}}},
	P = {"Probe extended transport header", 16, {{"mrc.vendor", 3, 1}, {"mrc.probe_id", 4, 2}, {"mrc.src_context", 8, 2},
		{"mrc.dest_context", 10, 2}, stamp(12)}},
	Q = {"Endpoint request extended transport header", 16, {{"mrc.op", 1, 1}, {"mrc.vendor", 3, 1}, {"mrc.ports", 4, 4}, stamp(12)}},
	E = {"Endpoint response extended transport header", 36, {{"mrc.response_op", 1, 1}, {"mrc.timestamp", 28, 2}}},
}

local function syndromeText(s)
	local kind = bits.rshift(s, 5)
	if kind == 0 then
		return "ACK"
	elseif kind == 1 then
		return "RNR NAK"
	end
	local naks = {[0x60] = "NAK sequence", [0x61] = "NAK invalid request", [0x62] = "NAK remote access", [0x63] = "NAK remote operation"}
	return naks[s] or "NAK"
end

-- carries reports whether packets to a queue pair are Flor's, as the user says.
local carriers, carriersText = {}, ""
local function carries(qp)
	local text = roced.prefs.flor
	if text ~= carriersText then
		carriers, carriersText = {}, text
		for word in text:gmatch("[^,%s]+") do
			carriers[tonumber(word) or word] = true
		end
	end
	return carriers.all or carriers[qp]
end

-- addImm adds what an immediate, or the number of a WRITE, says: hint, message, chunk.
local function addImm(t, range, hint)
	local v = range:uint()
	local message, chunk = bits.band(bits.rshift(v, 10), 0x1fffff), bits.band(v, 0x3ff)
	if hint then
		t:add(f["flor.hint"], range, v >= 0x80000000)
	end
	t:add(f["flor.message"], range, message)
	t:add(f["flor.chunk"], range, chunk)
	return message .. "/" .. chunk .. (hint and v >= 0x80000000 and " hint" or "")
end

local function zero(range)
	local b = range:bytes()
	for i = 0, b:len() - 1 do
		if b:get_index(i) ~= 0 then
			return false
		end
	end
	return true
end

-- addHeader adds the header of a SEND and returns a summary, nil if it is none.
local function addHeader(t, b)
	if b:len() < 32 then
		return nil
	end
	local kind, message = b(0, 1):uint(), b(16, 4):uint()
	if not kinds[kind] or b(1, 1):uint() > 1 or not zero(b(2, 2)) then
		return nil
	elseif (kind == 2 or kind == 3) and message >= 0x200000 or kind == 2 and not zero(b(24, 4)) then
		return nil
	elseif kind == 4 and (message >= 0x80000000 or not zero(b(20, 12))) then
		return nil
	end
	t:add(f["flor.kind"], b(0, 1))
	t:add(f["flor.hint"], b(1, 1), b(1, 1):uint() == 1)
	t:add(f["flor.rn"], b(4, 4))
	t:add(f["flor.gn"], b(8, 8))
	local text = kinds[kind] .. " " .. (kind == 4 and addImm(t, b(16, 4)) or message)
	if kind ~= 4 then
		t:add(f["flor.message"], b(16, 4))
	end
	if kind == 3 then
		t:add(f["flor.key"], b(20, 4))
		t:add(f["flor.addr"], b(24, 8))
	elseif kind ~= 4 then
		t:add(f["flor.length"], b(20, 4))
		if kind == 1 then
			t:add(f["flor.offset"], b(24, 4))
			text = text .. " at " .. b(24, 4):uint()
		end
		t:add(f["flor.tag"], b(28, 4))
		text = text .. " of " .. b(20, 4):uint()
	end
	return text .. " RN=" .. b(4, 4):uint() .. " GN=" .. tostring(b(8, 8):uint64()) .. (b(1, 1):uint() == 1 and " hint" or "")
end

-- addAck adds an acknowledgement and returns a summary, nil if it is none.
local function addAck(t, b)
	local n = math.floor((b:len() - 24) / 4)
	if b:len() < 28 or b:len() % 4 ~= 0 or n > 32 then
		return nil
	end
	local sends = b(4, 4):uint()
	local function send(i) return bits.band(bits.rshift(sends, 31 - i), 1) == 1 end
	local least = sends == 0 and zero(b(8, 8))
	for i = 0, 31 do
		if send(i) then
			if i >= n then
				return nil
			end
			least = least or zero(b(24 + 4 * i, 4))
		end
	end
	if not least or b(16, 1):uint() >= 0x80 or b(0, 1):uint() ~= 0 then
		return nil
	end
	t:add(f["flor.ack.qp"], b(0, 4))
	t:add(f["flor.ack.sends"], b(4, 4))
	t:add(f["flor.ack.least"], b(8, 8))
	t:add(f["flor.ack.delay"], b(16, 8))
	local text = string.format("ack of QP=0x%06x", b(0, 4):uint())
	for i = 0, n - 1 do
		local number = b(24 + 4 * i, 4)
		if send(i) then
			local gn = b(8, 8):uint64() + UInt64(number:uint(), 0)
			t:add(f["flor.gn"], number, gn)
			text = text .. " GN=" .. tostring(gn)
		else
			text = text .. " " .. addImm(t, number)
		end
	end
	return text
end

-- addFlor adds what a packet says to Flor, and returns a summary for its line, perhaps an empty one. at is
-- where its headers behind BTH and extension header begin.
local function addFlor(tvb, tree, at)
	local opcode = tvb(0, 1):uint()
	local op, transport = bits.band(opcode, 0x1f), bits.rshift(opcode, 5)
	local rest = tvb:len() - 4 - bits.rshift(bits.band(tvb(1, 1):uint(), 0x30), 4)
	local skip, add = nil, nil
	if op == 0x09 then
		skip = transport == 7 and 16 or 0
	elseif op == 0x0b then
		skip = 16
	elseif op == 0x00 or op == 0x04 then
		skip, add = transport == 3 and 8 or 0, addHeader
	elseif op == 0x05 or op == 0x17 then
		skip, add = transport == 3 and 12 or 4, addHeader
	end
	if not skip or at + skip > rest or transport ~= 0 and transport ~= 1 and transport ~= 3 and transport ~= 7 then
		return ""
	end
	at = at + skip
	if not add then
		local t = tree:add(roced, tvb(at, 4)):set_text("Flor")
		return " [Flor write " .. addImm(t, tvb(at, 4), true) .. "]"
	end
	local t = tree:add(roced, tvb(at, rest - at)):set_text("Flor")
	local text = at < rest and (transport == 3 and addAck or add)(t, tvb(at, rest - at):tvb())
	if text then
		return " [Flor " .. text .. "]"
	end
	t:add_proto_expert_info(e_flor)
	return ""
end

-- addHeaders adds the headers that letters name, from at on. It returns a reader behind them and a summary, nil after an error.
local function addHeaders(tvb, t, at, letters)
	local r, text = reader(tvb, t, at), ""
	for h in letters:gmatch(".") do
		local kind = headers[h]
		if r:left() < kind[2] then
			t:add_proto_expert_info(e_malformed, "Too short for the " .. kind[1])
			return nil
		end
		local start = r.at
		r.tree = t:add(tvb(start, kind[2]), kind[1])
		if h == "K" then
			text = text .. " " .. syndromeText(tvb(start, 1):uint())
		end
		for _, part in ipairs(kind[3]) do
			r.tree:add(f[part[1]], tvb(start + part[2], part[3]))
		end
		r.at = start + kind[2]
	end
	return r, text
end

-- addRest adds payload and ICRC behind the headers, and returns a summary.
local function addRest(tvb, t, r)
	local text, payload = "", r:left() - bits.rshift(bits.band(tvb(1, 1):uint(), 0x30), 4)
	if payload > 0 then
		t:add(f.payload, tvb(r.at, payload))
		text = " Len=" .. payload
	end
	t:add(f.wirecrc, tvb(tvb:len() - 4, 4), tvb(tvb:len() - 4, 4):le_uint())
	return text
end

local function addExtended(tvb, pinfo, tree)
	pinfo.cols.protocol = "RoCEv2+"
	local opcode = tvb(0, 1):uint()
	local what = extended[opcode]
	local t = tree:add(roced, tvb())
	if tvb:len() < 16 then
		t:add_proto_expert_info(e_malformed, "Too short for a BTH")
		return
	end
	addBTH(tvb, t)
	local info = opcodeNames[opcode] .. string.format(" QP=0x%06x PSN=%d", tvb(5, 3):uint(), tvb(9, 3):uint())
	local at, text = addXETH(tvb, t)
	if not at then
		pinfo.cols.info = info .. " [malformed extension header: " .. text .. "]"
		t:add_proto_expert_info(e_malformed, "Malformed extension header: " .. text)
		return
	end
	local r, headersText = addHeaders(tvb, t, at, what[2])
	if not r then
		return
	end
	info = info .. headersText .. addRest(tvb, t, r)
	if carries(tvb(5, 3):uint()) then
		text = text .. addFlor(tvb, tree, at)
	end
	pinfo.cols.info = info .. " " .. text
end

-- trimmed is the number of the last frame with a trimmed packet, which has no invariant CRC.
local trimmed = nil

-- addSACK adds the PSNs that a SACK at at names relative to another one, and returns a summary.
local function addSACK(tvb, t, at)
	local cack = tvb(at + 13, 3):uint()
	local base = (cack + tvb(at + 18, 2):int()) % 0x1000000
	t:add(f["mrc.base"], tvb(at + 18, 2), base)
	local text = " cack=" .. cack .. " base=" .. base
	if bits.band(tvb(at + 1, 1):uint(), 2) ~= 0 then
		t:add(f["mrc.probe_id"], tvb(at + 2, 2))
		return text .. " probe=" .. tvb(at + 2, 2):uint()
	end
	local ack = (cack + tvb(at + 2, 2):int()) % 0x1000000
	t:add(f["mrc.ack_psn"], tvb(at + 2, 2), ack)
	return text .. " ack=" .. ack
end

local function addMRC(tvb, pinfo, tree)
	pinfo.cols.protocol = "MRC"
	local opcode = tvb(0, 1):uint()
	local letters = mrc[opcode][2]
	local t = tree:add(roced, tvb())
	if tvb:len() < 16 then
		t:add_proto_expert_info(e_malformed, "Too short for a BTH")
		return
	end
	addBTH(tvb, t, {"mrc.retx", "mrc.stamped"})
	local flags = tvb(8, 1):uint()
	if bits.band(flags, 0x10) == 0 then
		letters = letters:gsub("T", "")
	end
	local info = opcodeNames[opcode] .. string.format(" QP=0x%06x PSN=%d", tvb(5, 3):uint(), tvb(9, 3):uint())
	if bits.band(flags, 0x20) ~= 0 then
		info = info .. " retx"
	end
	local whole, least = 16, 12
	for h in letters:gmatch(".") do
		whole = whole + headers[h][2]
		if h == "M" or h == "T" then
			least = least + 4
		end
	end
	if letters:sub(1, 1) == "M" and tvb:len() < whole and tvb:len() >= least and tvb:len() == tvb:reported_len() then
		trimmed = pinfo.number
		t:add(f["mrc.trimmed"], tvb(12, least - 12), true)
		t:add(f["mrc.rqmsn"], tvb(12, 2))
		t:add(f["mrc.msn"], tvb(14, 2))
		if least > 16 then
			for _, part in ipairs({stamp(16)}) do
				t:add(f[part[1]], tvb(part[2], part[3]))
			end
		end
		pinfo.cols.info = info .. " [trimmed]"
		return
	end
	local r, text = addHeaders(tvb, t, 12, letters)
	if not r then
		pinfo.cols.info = info .. " [malformed]"
		return
	end
	if letters == "SC" then
		text = addSACK(tvb, t, 12)
	elseif letters == "N" then
		text = " " .. (reasons[tvb(14, 1):uint()] or "unknown reason")
	end
	pinfo.cols.info = info .. text .. addRest(tvb, t, r)
end

local standard = DissectorTable.get("udp.port"):get_dissector(4791)

function roced.dissector(tvb, pinfo, tree)
	local opcode = tvb:len() > 0 and tvb(0, 1):uint()
	if extended[opcode] or mrc[opcode] then
		(extended[opcode] and addExtended or addMRC)(tvb, pinfo, tree)
		return
	end
	-- Before the other dissector, which may take the payload for another protocol's, and give up.
	local flor = ""
	if tvb:len() >= 16 and tvb:len() == tvb:reported_len() and carries(tvb(5, 3):uint()) then
		flor = addFlor(tvb, tree, 12)
	end
	if standard then
		standard:call(tvb, pinfo, tree)
	end
	if tvb:len() >= 16 and tvb(0, 1):uint() == 0x81 then
		pinfo.cols.info = string.format("CNP (congestion notification) QP=0x%06x", tvb(5, 3):uint())
	end
	if flor ~= "" then
		pinfo.cols.info:append(flor)
	end
end

for port in pairs(PORTS) do
	DissectorTable.get("udp.port"):add(port, roced)
end

-- The invariant CRC (IBTA vol.1 7.8.1, annex A17.3.3): CRC-32 over eight bytes of ones
-- and the packet from the IP header on, with what may change on the way as ones.

local crcTable = {}
for i = 0, 255 do
	local c = i
	for _ = 1, 8 do
		local odd = bits.band(c, 1) == 1
		c = bits.rshift(c, 1)
		if odd then
			c = bits.bxor(c, 0xedb88320)
		end
	end
	crcTable[i] = c
end

-- masked returns the offsets, from the IP header on, that count as ones. hdr is the
-- length of the IP header.
local function masked(version, hdr)
	local ones = {[hdr + 6] = true, [hdr + 7] = true, [hdr + 12] = true} -- UDP checksum; FECN, BECN
	for _, at in ipairs(version == 4 and {1, 8, 10, 11} or {1, 2, 3, 7}) do
		ones[at] = true
	end
	return ones
end

local function icrc(packet, version, hdr)
	local ones, c = masked(version, hdr), 0xffffffff
	local function step(b)
		c = bits.bxor(bits.rshift(c, 8), crcTable[bits.band(bits.bxor(c, b), 255)])
	end
	for _ = 1, 8 do
		step(255)
	end
	for i = 0, packet:len() - 5 do
		local b = packet:get_index(i)
		if ones[i] then
			b = 255
		elseif i == 0 and version == 6 then
			b = bits.bor(b, 15) -- traffic class
		end
		step(b)
	end
	return bits.bxor(c, 0xffffffff) % 4294967296
end

local ip4, ip6, udp = Field.new("ip"), Field.new("ipv6"), Field.new("udp")
local dstport, udplen = Field.new("udp.dstport"), Field.new("udp.length")

local verdict = Proto("roced_icrc", "RoCEv2 invariant CRC")

local function last(...)
	local all = {...}
	return all[#all]
end

function verdict.dissector(tvb, pinfo, tree)
	if not roced.prefs.icrc or trimmed == pinfo.number then
		return
	end
	local port, header, len = last(dstport()), last(udp()), last(udplen())
	if not port or not PORTS[port.value] or not header or not len then
		return
	end
	local v4, v6 = last(ip4()), last(ip6())
	local network, version = v4, 4
	if v6 and (not v4 or v6.offset > v4.offset) then
		network, version = v6, 6
	end
	if not network then
		return
	end
	local first, ends = network.offset, header.offset + len.value
	if ends > tvb:captured_len() or ends - header.offset < 8 + 16 then
		return -- not captured whole
	end
	local packet = tvb(first, ends - first):bytes()
	local got, want = tvb(ends - 4, 4):le_uint(), icrc(packet, version, header.offset - first)
	local good = got == want
	local t = tree:add(roced, tvb(ends - 4, 4)):set_text("RoCEv2 invariant CRC: " .. (good and "good" or "bad"))
	t:add(f.icrc, tvb(ends - 4, 4), good and "good" or "bad")
	if not good then
		t:add_proto_expert_info(e_icrc, string.format("Bad invariant CRC: 0x%08x, computed 0x%08x", got, want))
		pinfo.cols.info:append(" [bad ICRC]")
	end
end

register_postdissector(verdict)
