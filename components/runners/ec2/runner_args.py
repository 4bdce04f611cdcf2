"""The arguments of :class:`components.runners.ec2.ec2_runners.Ec2Runners` and of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi_aws as aws

from stacks.checks.ec2_site import InstanceType, Site
from stacks.config.ec2 import Ec2RunnersConfig as Config


@dataclass(frozen=True, kw_only=True)
class Ec2RunnersArgs:
    """What the runners consist of.

    ``name`` prefixes the name of every resource of a set, and ``stack`` of what all sets share: without sets, both are
    one. ``config`` is the stack's configuration, or the set's, and ``site`` what AWS answered about it. ``user_data``
    is by number of EFA interfaces. ``code`` has the text of the functions' files.
    ``pull`` and ``push`` are the ARNs of the repositories that a job may pull from and push to.
    ``labels`` are all labels of a runner.
    """

    name: str
    stack: str
    config: Config
    site: Site
    provider: aws.Provider
    user_data: Mapping[int, str]
    code: Mapping[str, str]
    pull: Sequence[str]
    push: Sequence[str]
    labels: Sequence[str]

    @property
    def jobs(self) -> str:
        """The name of the table of jobs."""
        return f"{self.name}-jobs"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of every resource."""
        return {"slipway": self.stack}

    def efa(self, machine: InstanceType) -> int:
        """Return the number of EFA interfaces that an instance type gets."""
        return machine.efa if self.config.efa == "all" else self.config.efa
