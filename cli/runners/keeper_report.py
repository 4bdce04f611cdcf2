"""What the keeper of runners on EC2 last wrote of jobs and machines: a row of its table, read with its profile."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError, one_line
from scaler.waiting import Standing
from stacks.config.ec2 import Ec2RunnersConfig

_ROW: Final = {"id": {"S": "status"}}
_FIELDS: Final = {each.name for each in fields(Standing)}


def keeper_report(stack: str, config: Ec2RunnersConfig, profile: str | None = None) -> tuple[float, list[Standing]]:
    """Return when the keeper last looked, in seconds since 1970, and how far each job of a set had come.

    ``profile`` is the stack's ``aws:profile``; the machine's login by default.

    Raises SlipwayError: AWS refuses, the stack is not deployed, or the keeper has not looked yet.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - runners in a cluster need none of it

    from scaler.aws import user_client  # noqa: PLC0415 - as above

    table = f"{config.resource_name(stack)}-jobs"
    try:
        client = user_client("dynamodb", config.region, profile)
        item: Any = client.get_item(TableName=table, Key=_ROW).get("Item")
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code == "ResourceNotFoundException":
            raise SlipwayError(
                f"stack {stack}: account {config.account} has no table {table} in {config.region}: `slipway up "
                f"{stack}` makes it; or log in to that account"
            ) from None
        raise SlipwayError(f"stack {stack}: AWS refuses to read {table}: {one_line(str(error), 300)}") from None
    except BotoCoreError as error:
        raise SlipwayError(f"stack {stack}: {table} cannot be read: {one_line(str(error), 300)}") from None
    if item is None:
        raise SlipwayError(
            f"stack {stack}: the keeper has written no report to {table}, as it does each minute: `aws logs tail "
            f"--region {config.region} /slipway-{stack}/keeper` says why"
        )
    try:
        report = json.loads(item["report"]["S"])
        jobs = [Standing(**{key: value for key, value in row.items() if key in _FIELDS}) for row in report["jobs"]]
        return float(report["at"]), jobs
    except MALFORMED as error:
        raise SlipwayError(
            f"stack {stack}: the keeper's report in {table} cannot be read ({type(error).__name__}): is it of another "
            f"release? `slipway up {stack}`"
        ) from None
