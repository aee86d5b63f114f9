#!/usr/bin/python3
"""Two NICs of one machine, a queue pair on each: one writes into the other one's memory by RDMA.

usage: two_nics.py DEVICE DEVICE
"""
import sys
import time

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR
import pyverbs.enums as e

TEXT = b"written by RDMA"
LIMIT = 10  # seconds


class Side:
    """A NIC with a queue pair and memory."""

    def __init__(self, device):
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.mr = MR(self.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        self.cq = CQ(self.context, 16)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=4, max_recv_wr=4))
        self.qp = QP(self.pd, init)

    def connect(self, other):
        """Brings the queue pair to RTS, with other's as its peer."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        route = GlobalRoute(dgid=other.context.query_gid(1, 0), sgid_index=0)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.dest_qp_num = other.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        self.qp.to_rts(attr)

    def completion(self):
        """Waits for a work request to end and returns its status."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            n, done = self.cq.poll()
            if n:
                return done[0].status
        raise TimeoutError(f"no completion within {LIMIT} s")


def main(names):
    a, b = map(Side, names)
    a.connect(b)
    b.connect(a)
    a.mr.write(TEXT, len(TEXT))
    wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(a.mr.buf, len(TEXT), a.mr.lkey)])
    wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
    a.qp.post_send(wr)
    status = a.completion()
    if status != e.IBV_WC_SUCCESS:
        raise SystemExit(f"the write has ended with status {status}")
    read = b.mr.read(len(TEXT), 0)
    if read != TEXT:
        raise SystemExit(f"{names[1]} has {read!r}")
    print(f"{names[0]} -> {names[1]}: {read.decode()}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(sys.argv[1:])
