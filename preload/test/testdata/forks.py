"""Processes that Python makes while a device is open: multiprocessing in all its ways,
subprocess and os.fork(). Each child opens the device for itself; none disturbs another."""
import multiprocessing
import os
import subprocess
import sys

from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

try:
    from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_QPT_RC
except ImportError:  # since 58
    from pyverbs.libibverbs_enums import ibv_access_flags, ibv_qp_type
    IBV_ACCESS_LOCAL_WRITE, IBV_QPT_RC = ibv_access_flags.IBV_ACCESS_LOCAL_WRITE, ibv_qp_type.IBV_QPT_RC


def use(context):
    """Makes one of everything, and lets it go."""
    with PD(context) as pd, CompChannel(context) as channel:
        with CQ(context, 100, None, channel) as cq, MR(pd, 10000, IBV_ACCESS_LOCAL_WRITE) as mr:
            cq.req_notify()
            mr.write("hello", 5)
            assert mr.read(5, 0) == b"hello"
            cap = QPCap(max_send_wr=10, max_recv_wr=10, max_send_sge=1, max_recv_sge=1)
            with QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=cap), QPAttr()) as qp:
                return qp.qp_num


def work(name):
    with Context(name=name) as context:
        return [use(context) for _ in range(5)]


def child(name, queue):
    queue.put(work(name))


def processes(name, context, method):
    ways = multiprocessing.get_context(method)
    queue = ways.Queue()
    children = [ways.Process(target=child, args=(name, queue)) for _ in range(3)]
    for c in children:
        c.start()
    use(context)
    for c in children:
        assert len(queue.get(timeout=50)) == 5
    for c in children:
        c.join()
        assert c.exitcode == 0, c.exitcode
    use(context)


def main():
    name = get_device_list()[0].name.decode()
    with Context(name=name) as context:
        use(context)
        for method in "fork", "spawn", "forkserver":
            processes(name, context, method)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert all(len(n) == 5 for n in pool.map(work, [name] * 6))
        for close in True, False:
            subprocess.run(["true"], close_fds=close, check=True)
            subprocess.run(["true"], close_fds=close, start_new_session=True, preexec_fn=lambda: None, check=True)
            use(context)
        assert subprocess.check_output(["sh", "-c", "ls /sys/class/infiniband"]).decode().split()[0] == name
        pid = os.fork()
        if pid == 0:
            sys.exit(0)  # with the usual cleanup of Python
        assert os.waitpid(pid, 0)[1] == 0
        use(context)


if __name__ == "__main__":
    main()
