"""A batch script for Slurm that runs a stack's image with enroot, by the plugin pyxis: torchrun on every node.

The script starts torchrun as a module, with underscores in its options: torch before 1.10 has no such program, and
before 2.0 takes no dashes (documentation of torch 1.9.0 and 2.0, elastic/run); newer releases take both.
"""

from __future__ import annotations

from typing import Final

from containers.errors import SlipwayError
from stacks import flavors
from stacks.plan import Plan, PlannedImage

_SCRIPT: Final = """\
#!/bin/bash
# Runs a Python script on all GPUs of {nodes} nodes. Nodes need enroot and Slurm's plugin pyxis, and no Docker.
#
#   slipway export {stack} {image} --format sqsh --output {image}.sqsh
#   sbatch {stack}.sbatch train.py --epochs 3
#
# both in a folder that every node has; the script sees it as /workspace. IMAGE names a squashfs elsewhere.
#SBATCH --job-name={stack}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
#SBATCH --output=%x-%j.log
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: sbatch {stack}.sbatch SCRIPT [ARGUMENT...]" >&2
    exit 2
fi
folder=$SLURM_SUBMIT_DIR
image=${{IMAGE:-$folder/{image}.sqsh}}
if [ ! -r "$image" ]; then
    echo "$image: there is no such squashfs on $(hostname); \\`slipway export\\` writes it" >&2
    exit 2
fi
read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port=$((20000 + SLURM_JOB_ID % 10000)) # another for each job: nodes may be shared after all

srun --kill-on-bad-exit=1 \\
    --container-image="$image" --container-mounts="$folder:/workspace" --container-workdir=/workspace \\
    python -m torch.distributed.run --nnodes "$SLURM_JOB_NUM_NODES" --nproc_per_node gpu \\
    --rdzv_id "$SLURM_JOB_ID" --rdzv_backend c10d --rdzv_endpoint "$first:$port" "$@"
"""


def script(plan: Plan, image: PlannedImage, nodes: int) -> str:
    """Return a batch script of so many nodes for one of a stack's images.

    Raises SlipwayError: ``nodes`` is less than one, or the image has no CUDA.
    """
    gpus = gpus_per_node(plan, nodes)
    return _SCRIPT.format(stack=plan.stack, image=image.spec.name, nodes=nodes, gpus=gpus)


def gpus_per_node(plan: Plan, nodes: int) -> int:
    """Return the GPUs of a node of a stack's jobs, each with a process of its own.

    Raises SlipwayError: ``nodes`` is less than one, or the images have no CUDA.
    """
    requirements = flavors.requirements(plan.config)
    if requirements.no_gpu:
        raise SlipwayError(
            f"stack {plan.stack}: {requirements.no_gpu}: a job runs a process on each GPU, and the images have no "
            "CUDA; choose a stack that has it"
        )
    if nodes < 1:
        raise SlipwayError(f"--nodes {nodes}: give 1 or more")
    return requirements.gpus_per_node
