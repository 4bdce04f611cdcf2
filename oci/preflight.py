"""Checks before the first build: credentials to push, and the programs that sign and verify."""

from __future__ import annotations

from oci import credentials
from stacks.plan import Plan


def check(plan: Plan) -> None:
    """Check that the images of a plan can be pushed and signed, and their parents verified.

    Raises:
        SlipwayError: credentials, a program or a key is missing.
    """
    signing = plan.config.signing if plan.config.publish else None
    if plan.config.publish:
        credentials.check(plan.config.registry)
    if plan.config.publish and plan.config.vulnerabilities:
        from oci.vulnerabilities import grype  # noqa: PLC0415 - other stacks start faster without it

        grype.check()
    if signing or plan.signers:
        from oci import cosign  # noqa: PLC0415 - other stacks start faster without it

        cosign.check(signing)
