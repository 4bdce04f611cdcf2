"""The Pulumi program: configuration -> plan -> components -> outputs."""

from components.runtime import end_at_interrupt, reduce_overhead, settle_outputs

end_at_interrupt()
reduce_overhead()  # before the imports, which make much garbage

import subprocess

import pulumi
from pulumi.runtime.config import CONFIG

from components import engines, preflight
from components.deployment import deploy
from containers.errors import SlipwayError, out_of_time
from stacks import placement, plan
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.load import from_pulumi
from stacks.config.stack_file import ROOT
from stacks.identity import staged_context

try:
    planned = plan.make(pulumi.get_stack(), from_pulumi(CONFIG.get()), settings=CONFIG.get())
    placed = placement.place(planned)
    replicas = None
    if not pulumi.runtime.is_dry_run():
        preflight.check(planned)
        replicas = engines.start(placed.built, ROOT)
    staged_context.write((image.content for image in planned.images), ROOT)
except SlipwayError as error:
    raise pulumi.RunError(str(error)) from None
except subprocess.TimeoutExpired as error:
    raise pulumi.RunError(out_of_time(error.cmd, error.timeout)) from None

for line in planned.warnings:
    pulumi.warn(line)
if isinstance(planned.config.runners, KubernetesRunnersConfig) and not pulumi.runtime.is_dry_run():
    from components.runners.kubernetes import cluster_health  # a preview asks no cluster

    specs = [image.spec for image in planned.images]
    for line in cluster_health.warnings(planned.config.runners, specs):
        pulumi.warn(line)

for name, value in deploy(placed, replicas).items():
    pulumi.export(name, value)
pulumi.run(settle_outputs)
