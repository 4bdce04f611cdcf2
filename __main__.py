"""The Pulumi program: configuration -> plan -> components -> outputs."""

import pulumi
from pulumi.runtime.config import CONFIG

from components.runners import seen
from components.runtime import hasten
from components.stack import deploy
from stacks import plan
from stacks.config import from_pulumi
from stacks.errors import SlipwayError
from stacks.runners import KubernetesRunners

hasten()
try:
    planned = plan.make(pulumi.get_stack(), from_pulumi(CONFIG.get()))
    if not pulumi.runtime.is_dry_run():
        planned.check_ready()
except SlipwayError as error:
    raise pulumi.RunError(str(error)) from None

for line in planned.config.doubts:
    pulumi.warn(line)
if isinstance(planned.config.runners, KubernetesRunners) and not pulumi.runtime.is_dry_run():
    for line in seen.warnings(planned.config.runners):
        pulumi.warn(line)

for name, value in deploy(planned).items():
    pulumi.export(name, value)
