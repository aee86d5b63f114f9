package rocev2

// Census counts the verbs objects of a NIC.
type Census struct{ QPs, CQs, SRQs, MRs, PDs, AHs int }

// Census counts the objects in constant time.
func (n *NIC) Census() Census {
	o := &n.obj
	return Census{QPs: o.qps.Live, CQs: o.cqs.Live, SRQs: o.srqs.Live, MRs: n.mem.NumMRs(), PDs: n.mem.NumPDs(), AHs: o.ahs.Live}
}

// QPPage visits up to most queue pairs, from place from on. It returns the place where the next page begins, 0 after the
// last one. Between two pages the NIC can process packets. QPPage may miss queue pairs that are created or destroyed
// meanwhile.
func (n *NIC) QPPage(from uint32, most int, visit func(*QueuePair)) (next uint32) {
	return n.obj.qps.Page(from, most, visit)
}

// Info describes the queue pair.
func (q *QueuePair) Info() QPInfo { return q.info() }
