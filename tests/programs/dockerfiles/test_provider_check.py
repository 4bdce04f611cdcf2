"""``checks/provider.py`` of the EFA image: it says yes to NCCL on EFA, and no to everything else.

The logs in nccl_logs/ were recorded: NCCL 2.28.9 of torch 2.11 on two H200 of one machine without EFA, its name and address
replaced. net: NVLink and shared memory switched off; p2p: as it is; net-ofi: NCCL_NET_PLUGIN=ofi; net-forced: NCCL_NET="AWS
Libfabric". Those with EFA are parts of what AWS's samples show of their runs on EKS: efa-mpirun is nccl-tests on two machines
by mpirun --tag-output, with NCCL 2.12.7; efa-training is one process of a training on two, with NCCL 2.25. For what they do not
have, several devices and newer plugins, lines were written here in the words of aws-ofi-nccl 1.7.3 and 1.16.2, as the sources
that provider.py names print them: no machine with EFA was at hand.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every

PROVIDER = ROOT / CONTEXT / "efa/checks/provider.py"

EFA = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
ip-10-1-41-139:6171:6171 [0] NCCL INFO Bootstrap: Using enp71s0:10.1.41.139<0>
ip-10-1-41-139:6171:6171 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
ip-10-1-41-139:6171:6240 [0] NCCL INFO NET/Plugin: Plugin name set by env to libnccl-net-ofi.so
ip-10-1-41-139:6171:6240 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)
ip-10-1-41-139:6171:6240 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2
ip-10-1-41-139:6171:6240 [0] NCCL INFO NET/OFI Using Libfabric version 2.1
ip-10-1-41-139:6171:6240 [0] NCCL INFO NET/OFI Setting provider_filter to efa
ip-10-1-41-139:6171:6240 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
ip-10-1-41-139:6171:6240 [0] NCCL INFO Initialized NET plugin Libfabric
ip-10-1-41-139:6171:6240 [0] NCCL INFO Using network Libfabric
ip-10-1-41-139:6171:6301 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA
ip-10-1-41-139:6171:6301 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
ip-10-1-44-54:6168:6231 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2
ip-10-1-44-54:6168:6231 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
ip-10-1-44-54:6168:6231 [0] NCCL INFO Using network Libfabric
ip-10-1-44-54:6168:6302 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Libfabric/0/GDRDMA
"""

EFA_OF_THE_SEED = """\
2: ip-10-1-41-139:6171:8092 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.7.3-aws
2: ip-10-1-41-139:6171:8092 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
2: ip-10-1-41-139:6171:8092 [0] NCCL INFO Using network AWS Libfabric
2: ip-10-1-41-139:6171:8102 [0] NCCL INFO Channel 02/0 : 15[7] -> 0[0] [receive] via NET/AWS Libfabric/2/GDRDMA
"""

LOGS = Path(__file__).with_name("nccl_logs")
NO_EFA = (LOGS / "net.log").read_text()
NO_DEVICE = """\
node:210:231 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v11)
node:210:231 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.21.1
node:210:231 [0] NCCL INFO NET/OFI No eligible providers were found
[2026-09-17 04:02:30] node:210:231 [0] int create(plugin_t**):334 NCCL WARN NET/OFI Unable to find a protocol that worked.
node:210:231 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>
node:210:231 [0] NCCL INFO Using network Socket
"""

TCP_PROVIDER = EFA.replace("provider is efa, fabric is efa-direct", "provider is tcp, fabric is 10.0.0.0/24")
ONE_RANK_ON_TCP = EFA.replace(
    "6168:6231 [0] NCCL INFO Using network Libfabric", "6168:6231 [0] NCCL INFO Using network Socket"
)
INFINIBAND = NO_EFA.replace("NET/IB : No device found.", "NET/IB : Using [0]mlx5_0:1/IB").replace(
    "network Socket", "network IB"
)


def judged(log: str, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PROVIDER, *files], input=log, capture_output=True, text=True, check=False)


@every(
    "log, message",
    [
        (EFA, "ip-10-1-41-139:6171: aws-ofi-nccl 1.16.2, provider efa, 32 devices\n"),
        (EFA_OF_THE_SEED, "ip-10-1-41-139:6171: aws-ofi-nccl 1.7.3-aws, provider efa, 4 devices\n"),
    ],
)
def test_provider_check_of_efa_log_passes(log: str, message: str) -> None:
    done = judged(log)
    assert (done.returncode, done.stderr) == (0, "")
    assert message in done.stdout


def test_provider_check_of_recorded_efa_log_passes() -> None:
    done = judged("", LOGS / "efa-mpirun.log", LOGS / "efa-training.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "test-nccl-efa-worker-0:21: aws-ofi-nccl 1.5.0aws, provider efa, 1 devices",
        "test-nccl-efa-worker-1:21: aws-ofi-nccl 1.5.0aws, provider efa, 1 devices",
        "bionemo-esm2-worker-0:53: aws-ofi-nccl 1.13.2-aws, provider efa, 1 devices",
    ]


@every(
    "log, message",
    [
        (INFINIBAND, "node:691 uses the network IB, Socket, not EFA"),
        (NO_DEVICE, "node:210 uses the network Socket, not EFA (NET/OFI No eligible providers were found)"),
        (TCP_PROVIDER, "ip-10-1-44-54:6168 has selected the provider tcp, not efa"),
        (ONE_RANK_ON_TCP, "ip-10-1-44-54:6168 uses the network Socket, not EFA"),
        (
            EFA.replace("via NET/Libfabric/0", "via NET/Socket/0", 1),
            "ip-10-1-41-139:6171 uses the network Socket, not EFA",
        ),
        (EFA.replace("Using network", "Uses"), "does not say which network it uses"),
        (EFA.replace("Selected", "Rejected"), "has selected no provider"),
        (EFA + "ip-10-1-9-9:1:1 [0] NCCL INFO cudaDriverVersion 13000\n", "ip-10-1-9-9:1 has selected no provider"),
        ("", "there is no line of NCCL's; was it run with NCCL_DEBUG=INFO?"),
        ("NET/OFI Selected provider is efa, fabric is efa (found 4 nics)", "there is no line of NCCL's"),
    ],
)
def test_provider_check_of_other_log_fails(log: str, message: str) -> None:
    done = judged(log)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


@every(
    "log, message",
    [
        ("net", "uses the network Socket, not EFA (NET/Plugin: Could not find: libnccl-net.so)"),
        ("p2p", "uses the network Socket, not EFA (NET/Plugin: Could not find: libnccl-net.so)"),
        ("net-ofi", "uses the network Socket, not EFA (NET/Plugin: Could not find: ofi libnccl-net-ofi.so)"),
        ("net-forced", "has selected no provider (NET/Plugin: Could not find: libnccl-net.so)"),
    ],
)
def test_provider_check_without_efa_in_each_process_fails(log: str, message: str) -> None:
    done = judged("", LOGS / f"{log}.log")
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.partition(" ")[2] for line in done.stderr.splitlines()] == [message, message]


def test_provider_check_reads_all_files(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(EFA)
    bad.write_text(NO_EFA)
    assert judged("", good).returncode == 0
    done = judged("", good, bad)
    assert done.returncode == 1
    assert "ip-10-1-41-139" not in done.stderr
