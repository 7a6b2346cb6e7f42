"""Two queue pairs of rxe0 in one process, connected with each other, by pyverbs."""

import atexit
import os
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

# Objects of modules are destroyed in any order, about which pyverbs complains.
atexit.register(lambda: (sys.stdout.flush(), os._exit(0)))
context = Context(name="rxe0")
domain = PD(context)
region = MR(domain, 1 << 16, e.IBV_ACCESS_LOCAL_WRITE)
# The port's address is ready a moment after its interface.
for _ in range(50):
    gid = context.query_gid(1, 1)
    if gid.gid.endswith("c000:0201"):
        break
    time.sleep(0.1)
route = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=1), is_global=1, port_num=1)


class Side:
    def __init__(self, kind=e.IBV_QPT_RC, entries=64):
        self.queue = CQ(context, entries)
        init = QPInitAttr(qp_type=kind, scq=self.queue, rcq=self.queue, cap=QPCap(64, 64, 1, 1, 0), sq_sig_all=1)
        self.pair = QP(domain, init)

    def to(self, other, retries=3):
        attr = QPAttr(port_num=1)
        attr.dest_qp_num, attr.path_mtu, attr.ah_attr = other.pair.qp_num, e.IBV_MTU_1024, route
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 8, retries, 3
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        self.pair.to_rts(attr)

    def send(self, number, length=8, key=None):
        piece = SGE(region.buf, length, region.lkey if key is None else key)
        return SendWR(wr_id=number, opcode=e.IBV_WR_SEND, num_sge=1, sg=[piece], send_flags=e.IBV_SEND_SIGNALED)

    def post(self, request):
        self.pair.post_send(request)

    def receive(self, number, length=8):
        self.pair.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[SGE(region.buf + 4096, length, region.lkey)]))

    def completions(self, seconds=1.0):
        end, found = time.monotonic() + seconds, []
        while time.monotonic() < end:
            found += self.queue.poll(16)[1]
        return " ".join(f"{one.wr_id}:{e.ibv_wc_status(one.status).name.removeprefix('IBV_WC_')}" for one in found) or "none"

    def state(self):
        return e.ibv_qp_state(self.pair.query(e.IBV_QP_STATE)[0].qp_state).name.removeprefix("IBV_QPS_")


def connected(entries=64):
    one, other = Side(entries=entries), Side()
    one.to(other)
    other.to(one)
    return one, other
