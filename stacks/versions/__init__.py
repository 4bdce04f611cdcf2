"""Which versions go together: tables as data, each with its source, and the questions a config asks of them.

The tables are the TOML files beside this module; nothing is read before the first question. Every refusal is an
:class:`Incompatible`, one line that names the field, the value, what is allowed and where the rule comes from.
"""

from stacks.versions.archs import (
    Arch,
    arch_list,
    arch_numbers,
    arch_profiles,
    default_archs,
    parse_archs,
)
from stacks.versions.clusters import (
    EfaInstaller,
    NgcRelease,
    check_efa_ubuntu,
    check_nccl_not_older,
    check_ofi_nccl,
    efa_environment,
    efa_installer,
    efa_versions,
    needs_sync_memops,
    ngc,
    ngc_versions,
    ofi_nccl_tag,
)
from stacks.versions.distros import Distro, check_gcc, distro, distro_names, distro_python, host_gcc
from stacks.versions.errors import Incompatible, nearest
from stacks.versions.libraries import NcclRelease, check_extra, extra_archs, magma_package, nccl, nccl_versions
from stacks.versions.pytorch import (
    Companion,
    Machine,
    TorchRelease,
    check_audio_wheel,
    check_companion,
    check_cudnn,
    check_python,
    check_torch_cuda,
    companion_versions,
    final_version,
    torch_release,
    torch_versions,
)
from stacks.versions.toolkit import CudaRelease, Edition, check_driver, cuda, cuda_parent, cuda_versions

__all__ = [
    "Arch",
    "Companion",
    "CudaRelease",
    "Distro",
    "Edition",
    "EfaInstaller",
    "Incompatible",
    "Machine",
    "NcclRelease",
    "NgcRelease",
    "TorchRelease",
    "arch_list",
    "arch_numbers",
    "arch_profiles",
    "check_audio_wheel",
    "check_companion",
    "check_cudnn",
    "check_driver",
    "check_efa_ubuntu",
    "check_extra",
    "check_gcc",
    "check_nccl_not_older",
    "check_ofi_nccl",
    "check_python",
    "check_torch_cuda",
    "companion_versions",
    "cuda",
    "cuda_parent",
    "cuda_versions",
    "default_archs",
    "distro",
    "distro_names",
    "distro_python",
    "efa_environment",
    "efa_installer",
    "efa_versions",
    "extra_archs",
    "final_version",
    "host_gcc",
    "magma_package",
    "nccl",
    "nccl_versions",
    "nearest",
    "needs_sync_memops",
    "ngc",
    "ngc_versions",
    "ofi_nccl_tag",
    "parse_archs",
    "torch_release",
    "torch_versions",
]
