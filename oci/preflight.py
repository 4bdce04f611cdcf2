"""What must be there before the first image is built: credentials to push, programs to sign and verify."""

from __future__ import annotations

from oci import credentials
from stacks.plan import Plan


def check(plan: Plan) -> None:
    """Refuse to start builds that could not be pushed, signed, or stand on parents that are verified.

    Raises:
        SlipwayError: naming what is missing.
    """
    signing = plan.config.signing if plan.config.publish else None
    if plan.config.publish:
        credentials.check(plan.config.registry)
    if signing or plan.signers:
        from oci import cosign  # noqa: PLC0415 - no other stack should pay for it

        cosign.check(signing)
