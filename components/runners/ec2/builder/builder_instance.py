"""The builder as EC2 has it: found by its name, started, stopped, and told whose key it lets in.

Without Pulumi: the proxy asks it too, at each connection.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from stacks.errors import SlipwayError, one_line

_LATER = {
    "EC2InstanceStateInvalidException",
    "EC2InstanceUnavailableException",
    "IncorrectInstanceState",
    "InsufficientInstanceCapacity",
    "RequestLimitExceeded",
    "ThrottlingException",
}
"""What AWS says of that which may work a moment later."""

_PAUSE = 2


class Machine:
    """The machine of a name in a region, whatever its id is now."""

    def __init__(self, region: str, name: str) -> None:
        self.region, self.name = region, name
        session = boto3.Session(region_name=region)
        self._ec2: Any = session.client("ec2")
        self._connect: Any = session.client("ec2-instance-connect")

    def start(self, end: float) -> str:
        """Start it unless it runs, and return its id once it does; ``end`` is the latest, by the monotonic clock.

        Raises:
            SlipwayError: AWS refuses, there is no such machine, or it does not run in time; in one line.
        """
        last = ""
        while True:
            found = self._find()
            state = found["State"]["Name"]
            if state == "running":
                return str(found["InstanceId"])
            if state == "stopped":
                last = self._try(self._ec2.start_instances, InstanceIds=[found["InstanceId"]])
            if time.monotonic() > end:
                raise SlipwayError(f"{self._what} {found['InstanceId']} does not start: {last or f'it is {state}'}")
            time.sleep(_PAUSE)

    def admit(self, instance: str, user: str, key: Path) -> str:
        """Let a user's public key in for a minute, as EC2 Instance Connect does; return why not yet, if so.

        Raises:
            SlipwayError: AWS refuses, in one line.
        """
        public = key.with_suffix(".pub").read_text(encoding="ascii")
        return self._try(
            self._connect.send_ssh_public_key, InstanceId=instance, InstanceOSUser=user, SSHPublicKey=public
        )

    def stop(self) -> None:
        """Stop it, if it runs.

        Raises:
            SlipwayError: AWS refuses, or there is no such machine; in one line.
        """
        found = self._find()
        if found["State"]["Name"] in {"pending", "running"}:
            refused = self._try(self._ec2.stop_instances, InstanceIds=[found["InstanceId"]])
            if refused:
                raise SlipwayError(f"{self._what} {found['InstanceId']} does not stop: {refused}")

    @property
    def _what(self) -> str:
        return f"the builder {self.name} in {self.region}"

    def _find(self) -> dict[str, Any]:
        filters = [
            {"Name": "tag:Name", "Values": [self.name]},
            {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
        ]
        found: list[dict[str, Any]] = []
        try:
            answer = self._ec2.describe_instances(Filters=filters)
        except (BotoCoreError, ClientError) as error:
            raise SlipwayError(f"{self._what}: {one_line(str(error), 400)}") from None
        for reservation in answer["Reservations"]:
            found += reservation["Instances"]
        if not found:
            raise SlipwayError(f"{self._what}: there is none; `pulumi up --refresh` makes it anew")
        if len(found) > 1:
            ids = ", ".join(sorted(one["InstanceId"] for one in found))
            raise SlipwayError(f"{self._what}: several machines have this name: {ids}")
        return found[0]

    def _try(self, call: Any, **arguments: Any) -> str:
        """Make a call; return what AWS said where it may work later, and nothing where it did."""
        try:
            call(**arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _LATER:
                raise SlipwayError(f"{self._what}: {one_line(str(error), 400)}") from None
            return one_line(str(error), 400)
        except BotoCoreError as error:
            raise SlipwayError(f"{self._what}: {one_line(str(error), 400)}") from None
        return ""
