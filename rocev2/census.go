package rocev2

// Census counts the verbs objects of a NIC.
type Census struct{ QPs, CQs, SRQs, MRs, PDs, AHs int }

// Census counts the objects in constant time.
func (n *NIC) Census() Census {
	o := &n.obj
	return Census{QPs: o.qps.live, CQs: o.cqs.live, SRQs: o.srqs.live, MRs: o.mrs.live, PDs: o.pds.live, AHs: o.ahs.live}
}

// QPPage visits up to most queue pairs, from the place from on. It returns the place where the next page begins, 0
// after the last one. A caller that pages leaves the NIC to its packets between two pages; queue pairs that are
// created or destroyed meanwhile may be missed.
func (n *NIC) QPPage(from uint32, most int, visit func(*QueuePair)) (next uint32) {
	slots := n.obj.qps.slots
	for i := from; i < uint32(len(slots)); i++ {
		if most == 0 {
			return i
		}
		if q := slots[i].v; q != nil {
			visit(q)
			most--
		}
	}
	return 0
}

// Info describes the queue pair.
func (q *QueuePair) Info() QPInfo { return q.info() }
