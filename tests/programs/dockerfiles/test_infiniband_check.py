"""Which network NCCL's log says that it uses: InfiniBand, or not."""

from __future__ import annotations

import os
import subprocess
import sys

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every

PROGRAM = ROOT / CONTEXT / "megatron/checks/infiniband.py"

INFINIBAND = """\
aks-ndv5-0:311:742 [3] NCCL INFO NET/IB : Using [0]mlx5_ib0:1/IB/SHARP [1]mlx5_ib1:1/IB/SHARP [RO]; OOB eth0:10.244.1.7<0>
aks-ndv5-0:311:742 [3] NCCL INFO Using network IBext_v8
aks-ndv5-0:311:742 [3] NCCL INFO Channel 00/0 : 3[3] -> 11[3] [send] via NET/IBext_v8/3/GDRDMA
aks-ndv5-0:311:742 [3] NCCL INFO 24 coll channels, 0 collnet channels, 0 nvls channels, 32 p2p channels, 2 p2p channels per peer
iteration 10/ 100 | lm loss: 9.1
aks-ndv5-1:90:512 [0] NCCL INFO Using network IB
aks-ndv5-1:90:512 [0] NCCL INFO 24 coll channels, 0 collnet channels, 0 nvls channels, 32 p2p channels, 2 p2p channels per peer
"""
"""Two processes of two nodes, in the form that NCCL's sources give its lines."""

TCP = INFINIBAND.replace("network IB\n", "network Socket\n")
SHARP = INFINIBAND.replace(", 0 collnet", ", 24 collnet")


def judge(log: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM],
        input=log,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_infiniband_check_of_infiniband_log_passes() -> None:
    done = judge(INFINIBAND)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "aks-ndv5-0:311: IBext_v8\naks-ndv5-1:90: IB\n"
    assert judge(SHARP, NCCL_COLLNET_ENABLE="1").returncode == 0


@every(
    "log, environment, message",
    [
        (TCP, {}, "aks-ndv5-1:90 uses the network Socket, not InfiniBand\n"),
        (
            INFINIBAND.replace("via NET/IBext_v8", "via NET/Socket"),
            {},
            "aks-ndv5-0:311 uses the network Socket, not Infi",
        ),
        (
            INFINIBAND.replace("/IB/SHARP", "/RoCE"),
            {},
            "[1]mlx5_ib1:1/RoCE [RO], which is Ethernet (RoCE), not InfiniBand\n",
        ),
        (INFINIBAND.replace("Using network IB\n", "\n"), {}, "aks-ndv5-1:90 does not say which network it uses\n"),
        (INFINIBAND, {"NCCL_COLLNET_ENABLE": "1"}, "aks-ndv5-0:311 has no channel through the switches"),
        ("iteration 10", {}, "there is no line of NCCL's; was it run with NCCL_DEBUG=INFO?\n"),
    ],
)
def test_infiniband_check_of_other_log_fails(log: str, environment: dict[str, str], message: str) -> None:
    done = judge(log, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
