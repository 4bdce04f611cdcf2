"""The builder's EC2 instance: found by name, started, stopped, and opened to an ssh key. Plain boto3, no Pulumi."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from stacks.errors import SlipwayError, one_line

_RETRIED = {
    "EC2InstanceStateInvalidException",
    "EC2InstanceUnavailableException",
    "IncorrectInstanceState",
    "InsufficientInstanceCapacity",
    "RequestLimitExceeded",
    "ThrottlingException",
}
"""AWS's error codes for calls that may succeed a moment later."""

_PAUSE = 2


class Machine:
    """The machine with a name in a region, whatever its current id."""

    def __init__(self, region: str, name: str) -> None:
        self.region, self.name = region, name
        session = boto3.Session(region_name=region)
        self._ec2: Any = session.client("ec2")
        self._connect: Any = session.client("ec2-instance-connect")

    def start(self, end: float) -> str:
        """Start the machine unless it runs, wait until it does, and return its id.

        Args:
            end: the deadline, by the monotonic clock.

        Raises:
            SlipwayError: AWS refuses, there is no such machine, or it does not run by the deadline.
        """
        last = ""
        while True:
            instance = self._find()
            state = instance["State"]["Name"]
            if state == "running":
                return str(instance["InstanceId"])
            if state == "stopped":
                last = self._try(self._ec2.start_instances, InstanceIds=[instance["InstanceId"]])
            if time.monotonic() > end:
                raise SlipwayError(f"{self._title} {instance['InstanceId']} does not start: {last or f'it is {state}'}")
            time.sleep(_PAUSE)

    def admit(self, instance: str, user: str, key: Path) -> str:
        """Admit a user's public key for a minute by EC2 Instance Connect; return AWS's reason if that must be retried.

        Raises:
            SlipwayError: AWS refuses.
        """
        public = key.with_suffix(".pub").read_text(encoding="ascii")
        return self._try(
            self._connect.send_ssh_public_key, InstanceId=instance, InstanceOSUser=user, SSHPublicKey=public
        )

    def stop(self) -> None:
        """Stop the machine if it runs.

        Raises:
            SlipwayError: AWS refuses, or there is no such machine.
        """
        instance = self._find()
        if instance["State"]["Name"] in {"pending", "running"}:
            reason = self._try(self._ec2.stop_instances, InstanceIds=[instance["InstanceId"]])
            if reason:
                raise SlipwayError(f"{self._title} {instance['InstanceId']} does not stop: {reason}")

    @property
    def _title(self) -> str:
        return f"the builder {self.name} in {self.region}"

    def _find(self) -> dict[str, Any]:
        filters = [
            {"Name": "tag:Name", "Values": [self.name]},
            {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
        ]
        try:
            response = self._ec2.describe_instances(Filters=filters)
        except (BotoCoreError, ClientError) as error:
            raise SlipwayError(f"{self._title}: {one_line(str(error), 400)}") from None
        instances: list[dict[str, Any]] = [
            instance for reservation in response["Reservations"] for instance in reservation["Instances"]
        ]
        if not instances:
            raise SlipwayError(f"{self._title}: there is none; `pulumi up --refresh` makes it anew")
        if len(instances) > 1:
            ids = ", ".join(sorted(instance["InstanceId"] for instance in instances))
            raise SlipwayError(f"{self._title}: several machines have this name: {ids}")
        return instances[0]

    def _try(self, call: Any, **arguments: Any) -> str:
        """Make a call; return AWS's reason if the call must be retried, and an empty text if it succeeded."""
        try:
            call(**arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _RETRIED:
                raise SlipwayError(f"{self._title}: {one_line(str(error), 400)}") from None
            return one_line(str(error), 400)
        except BotoCoreError as error:
            raise SlipwayError(f"{self._title}: {one_line(str(error), 400)}") from None
        return ""
