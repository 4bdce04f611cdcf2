"""The checks of the EFA image: each passes on the image, and fails for its fault."""

from __future__ import annotations

import pytest

from tests.images.efa.conftest import Built
from tests.images.engine import DOCKERFILES

CHECKS = DOCKERFILES / "efa/checks/build"
PLUGIN = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"
ARGUMENTS = {
    "EFA_INSTALLER_VERSION": "1.51.0",
    "OFI_NCCL_VERSION": "1.22.0",
    "WITH_NCCL": "",
    "NCCL_TESTS_VERSION": "2.20.0",
    "WITH_PMIX": "",
    "XFORMERS_REF": "",
}
"""The arguments that the checks read, as the build of the default stack gives them."""

FAULTS = {
    "10-removed": [
        ("mkdir /opt/hpcx/ompi", "/opt/hpcx/ompi is still there, and would be used in place of EFA"),
        ("mkdir /opt/hpcx/ompi5", "/opt/hpcx/ompi5 is still there, and would be used in place of EFA"),
        ("ln -s ompi5 /opt/hpcx/ompi", "/opt/hpcx/ompi is still there, and would be used in place of EFA"),
        ("rm -r /opt/hpcx/ucc", "/opt/hpcx/ucc is gone, with which torch is linked"),
        ("rm /opt/hpcx/ucx/lib/libucp.so.0", "libucp.so.0"),
    ],
    "20-efa": [
        ("rm /opt/amazon/efa/lib/libfabric.so.1", "fi_info does not get EFA's libfabric.so.1"),
        ("sed -i s/FI_EFA_/FI_TCP_/g /opt/amazon/efa/lib/libfabric.so.1", "EFA's libfabric has no provider for EFA"),
        ("export EFA_INSTALLER_VERSION=1.50.0", "the installer is '# EFA installer version: 1.51.0', not 1.50.0"),
        ("install -D /dev/null /usr/lib/modules/6.1/efa.ko", "a kernel module is the host's"),
    ],
    "30-plugin": [
        (f"rm {PLUGIN}", "libnccl-net-ofi.so does not load: libnccl-net-ofi.so: cannot open shared object file"),
        ("export NCCL_NET_PLUGIN=spcx", "NCCL_NET_PLUGIN is 'spcx': NCCL would load another plugin"),
        (
            "rm $(find / -xdev -name 'libhwloc.so.15*')",
            "libnccl-net-ofi.so does not load: libhwloc.so.15: cannot open",
        ),
        (
            f"cp {PLUGIN} /opt/amazon/efa/lib/ && rm {PLUGIN}",
            "libnccl-net-ofi.so is /opt/amazon/efa/lib/libnccl-net-ofi.so, not the image's",
        ),
        (
            "cp /opt/amazon/efa/lib/libfabric.so.1 /usr/lib/ && rm /opt/amazon/efa/lib/libfabric.so.1 && ldconfig",
            "does not take libfabric from EFA",
        ),
        (
            f"echo 'int x;' | gcc -x c -shared -Wl,--no-as-needed -o {PLUGIN} - -L/opt/amazon/efa/lib -lfabric",
            "is no plugin",
        ),
        ("export OFI_NCCL_VERSION=1.21.1", "the plugin is aws-ofi-nccl 1.22.0, not 1.21.1"),
    ],
    "40-nccl": [("export WITH_NCCL=2.32.3-1", "NCCL is not 2.32.3-1: 1 2.29.7")],
    "50-mpi": [
        ("rm /opt/amazon/openmpi/bin/mpirun", "mpirun is , not /opt/amazon/openmpi/bin/mpirun"),
        ("export WITH_PMIX=4.2.6", "OpenMPI is not linked with PMIx 4.2.6 in /opt/pmix"),
    ],
    "60-tests": [("rm /opt/amazon/openmpi/lib/libmpi.so.40", ""), ("rm /opt/nccl-tests/build/gather_perf", "")],
    "70-environment": [
        ("export LD_LIBRARY_PATH=/usr/lib:$LD_LIBRARY_PATH", "which does not begin with EFA's libraries"),
        ("rm /etc/ld.so.conf.d/*efa* /etc/ld.so.conf.d/*ofi* && ldconfig", "is not found without LD_LIBRARY_PATH"),
        (
            "sed -i s,^NCCL_NET_PLUGIN=.*,NCCL_NET_PLUGIN=spcx, /etc/environment",
            "NCCL_NET_PLUGIN is 'spcx' in a session, 'ofi' in the image",
        ),
        ("ssh-keygen -A", "/etc/ssh/ssh_host_"),
    ],
    "80-xformers": [("export XFORMERS_REF=v0.0.35", "No module named 'xformers'")],
    "90-user": [("userdel slipway", "there is no user slipway with the id 1000")],
}
"""By check: a command that breaks the image, run as root, and the check's error."""


def test_checks_have_faults_each() -> None:
    assert sorted(FAULTS) == sorted(check.name for check in CHECKS.iterdir())


def _check(check: str, fault: str) -> tuple[str, tuple[str, ...], str]:
    program = (CHECKS / check).read_text()
    script = f"set -e; cat > /tmp/check; chmod +x /tmp/check; {{ {fault}; }} >&2; exec /tmp/check"
    options = (
        f"--volume={DOCKERFILES}/common/checks:/srv:ro",
        *(f"--env={key}={value}" for key, value in ARGUMENTS.items()),
    )
    return script, options, program


@pytest.mark.slow
@pytest.mark.parametrize("check", sorted(FAULTS))
def test_check_of_sound_image_passes(built: Built, check: str) -> None:
    script, options, program = _check(check, "true")
    built().run("sh", "-c", script, options=options, text=program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "fault", "message"), [(check, *fault) for check in FAULTS for fault in FAULTS[check]]
)
def test_check_of_faulty_image_fails(built: Built, check: str, fault: str, message: str) -> None:
    script, options, program = _check(check, fault)
    assert message in built().fails("sh", "-c", script, options=options, text=program)
