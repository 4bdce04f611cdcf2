"""The checks of the Megatron-LM image: each passes on the image, and fails for its fault."""

from __future__ import annotations

import pytest

from tests.fakes.upstreams.megatron_upstreams import Upstreams
from tests.images.engine import DOCKERFILES
from tests.images.megatron.conftest import Built

CHECKS = DOCKERFILES / "megatron/checks/build"
PACKAGES = "/usr/local/lib/python3*/dist-packages"
DATASETS = "/megatron-lm/megatron/core/datasets"
COMPILE = f"pip install -q --target /tmp/p pybind11==2.13.6 && PYTHONPATH=/tmp/p make -C {DATASETS} >&2"
USER = "setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/slipway"

FAULTS = {
    "10-user": [
        ("chmod o-r /opt/megatron/profiles/sharp", "/opt/megatron/profiles/sharp cannot be read by the user"),
        ("cd /workspace", "the working directory is '/workspace', not /megatron-lm"),
        ("USER=env", "the user is 0:0, not 1000:1000"),
    ],
    "20-versions": [
        ("export MEGATRON_LM_VERSION=878d65f", "MEGATRON_LM_VERSION is 878d65f, but /megatron-lm is "),
        ("export NEMO_VERSION=24.05", "NEMO_VERSION is 24.05, but the launcher starts nvcr.io/nvidia/nemo:24.09"),
        ("rm -r /opt/NeMo-Framework-Launcher", "there is no NeMo Framework Launcher 24.12 in"),
    ],
    "30-helpers": [
        (f"rm {DATASETS}/helpers_cpp*.so", "the dataset helpers are not compiled, or older than their source"),
        (f"touch {DATASETS}/helpers.cpp", "the dataset helpers are not compiled, or older than their source"),
        (
            f"sed -i 's/sample \\* length/sample * (length - 1)/' {DATASETS}/helpers.cpp; {COMPILE}",
            "the dataset helpers give [[0, 0], [0, 3], [1, 1], [2, 1]], not",
        ),
    ],
    "40-imports": [
        (f"rm -r {PACKAGES}/datasets", "datasets cannot be imported"),
        (
            f"rm -r {PACKAGES}/transformer_engine/pytorch",
            "transformer_engine.pytorch cannot be imported: ModuleNotFound",
        ),
        (f"rm {PACKAGES}/__editable__*", "megatron.core is not imported from another folder"),
        ("sed -i '1i import nothing_of_that_name' /megatron-lm/pretrain_gpt.py", "nothing_of_that_name"),
        ("rm -r /opt/NeMo-Framework-Launcher/requirements/hera", "No module named 'hera'"),
    ],
    "50-packages": [
        ("export TRANSFORMERS_VERSION=5.0.0", "transformers is 5.14.1, not 5.0.0"),
        (f"rm -r {PACKAGES}/xxhash*", "datasets requires xxhash, which is not installed"),
        (f"mv {PACKAGES}/packaging-*.dist-info {PACKAGES}/packaging-1.0.dist-info", ""),
    ],
    "60-network": [
        ("rm /opt/hpcx/ompi/bin/mpirun", "not HPC-X's"),
        ("touch /etc/apt/sources.list.d/doca.list", "/etc/apt/sources.list.d/doca.list stays"),
        ("export DOCA_RELEASE=3.3.0", "DOCA's userspace is 3.2.1-018000, not 3.3.0"),
        ("export DOCA_RELEASE=", "DOCA's userspace is there, and was not asked for"),
        ("rm /opt/mellanox/sharp/lib/libsharp_coll.so.5", "DOCA's libibverbs or SHARP does not load"),
        ("rm /usr/lib/*/libibverbs.so.1", "DOCA's libibverbs or SHARP does not load"),
        (
            "cp /opt/hpcx/ucx/lib/libucp.so.0 /usr/lib/ && rm /opt/hpcx/ucx/lib/libucp.so* && ldconfig",
            "torch gets /usr/lib/libucp.so.0",
        ),
    ],
    "70-topology": [
        ("echo >> /etc/ndv5-topo.xml", "/etc/ndv5-topo.xml is not the file of "),
        ("export TOPOLOGY_NAME=", "/etc/ndv5-topo.xml is there, and was not asked for"),
        ("sed -i /TOPO_FILE/d /opt/megatron/profiles/aks-ndv5", "with-profile gives '"),
    ],
    "80-transformer-engine": [("export TRANSFORMER_ENGINE_REF=v2.12", "TransformerEngine is not v2.12")],
    "90-tools": [("rm $(command -v zstd)", "zstd is not there")],
}
"""By check: a command that breaks the image, run as root, and the check's error, as the image's user."""


def test_checks_have_faults_each() -> None:
    assert sorted(FAULTS) == sorted(check.name for check in CHECKS.iterdir())


def _check(upstreams: Upstreams, check: str, fault: str) -> tuple[str, tuple[str, ...], str]:
    program = (CHECKS / check).read_text()
    arguments = {
        "DOCA_RELEASE": "3.2.1",
        "TOPOLOGY_NAME": "ndv5-topo.xml",
        "TOPOLOGY_SHA256": upstreams.topology["sha256"],
        "TRANSFORMER_ENGINE_REF": "",
        "DATASETS_VERSION": "5.0.0",
        "TRANSFORMERS_VERSION": "5.14.1",
        "TOKENIZERS_VERSION": "0.22.2",
        "HUGGINGFACE_HUB_VERSION": "1.24.0",
        "USER": USER,
    }
    script = f"set -e; cat > /tmp/check; chmod 755 /tmp/check; {fault}; exec $USER /tmp/check"
    options = (
        "--user=root",
        f"--volume={DOCKERFILES}/common/checks:/srv:ro",
        *(f"--env={key}={value}" for key, value in arguments.items()),
    )
    return script, options, program


@pytest.mark.slow
@pytest.mark.parametrize("check", sorted(FAULTS))
def test_check_of_sound_image_passes(built: Built, upstreams: Upstreams, check: str) -> None:
    script, options, program = _check(upstreams, check, "true")
    built().run("sh", "-c", script, options=options, text=program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "fault", "message"), [(check, *fault) for check in FAULTS for fault in FAULTS[check]]
)
def test_check_of_faulty_image_fails(built: Built, upstreams: Upstreams, check: str, fault: str, message: str) -> None:
    script, options, program = _check(upstreams, check, fault)
    assert message in built().fails("sh", "-c", script, options=options, text=program)
