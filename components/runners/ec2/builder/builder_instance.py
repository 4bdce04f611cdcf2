"""The builder's EC2 instance: found by name, started, stopped, and opened to an ssh key. Plain boto3, no Pulumi."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from containers.errors import SlipwayError, one_line
from scaler.aws import FAILURES, SHAPE, reason

_RETRIED = {
    "EC2InstanceStateInvalidException",
    "EC2InstanceUnavailableException",
    "IncorrectInstanceState",
    "InsufficientInstanceCapacity",
    "RequestLimitExceeded",
    "ThrottlingException",
}
"""AWS's error codes for calls that may succeed a moment later."""

_ID = re.compile("i-[0-9a-f]+")
"""An instance's id, which becomes an argument of programs."""

_PAUSE = 2

_CLIENT = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 3})
"""How AWS is asked: seconds for a connection and for the next bytes of an answer, and attempts. botocore's own would
take ten minutes for an AWS that does not answer."""


class BuilderInstance:
    """The machine with a name in a region, whatever its current id."""

    def __init__(self, region: str, name: str) -> None:
        self.region, self.name = region, name
        session = boto3.Session(region_name=region)
        self._ec2: Any = session.client("ec2", config=_CLIENT)
        self._connect: Any = session.client("ec2-instance-connect", config=_CLIENT)

    def start(self, end: float) -> str:
        """Start the machine unless it runs, wait until ``end`` by the monotonic clock, and return its id.

        Raises SlipwayError: AWS refuses, there is no such machine, or it does not run by then.
        """
        last = ""
        while True:
            instance, state = self._find()
            if state == "running":
                return instance
            if state == "stopped":
                last = self._try(self._ec2.start_instances, InstanceIds=[instance])
            if time.monotonic() > end:
                raise SlipwayError(f"{self._title} {instance} does not start: {last or f'it is {state}'}")
            time.sleep(_PAUSE)

    def admit(self, instance: str, user: str, key: Path) -> str:
        """Admit a user's public key for a minute by EC2 Instance Connect; return AWS's reason if that must be retried.

        Raises SlipwayError: AWS refuses.
        """
        public = key.with_suffix(".pub").read_text(encoding="ascii")
        return self._try(
            self._connect.send_ssh_public_key, InstanceId=instance, InstanceOSUser=user, SSHPublicKey=public
        )

    def stop(self) -> None:
        """Stop the machine if it runs. Raises SlipwayError: AWS refuses, or there is no such machine."""
        instance, state = self._find()
        if state in {"pending", "running"}:
            why = self._try(self._ec2.stop_instances, InstanceIds=[instance])
            if why:
                raise SlipwayError(f"{self._title} {instance} does not stop: {why}")

    @property
    def _title(self) -> str:
        return f"the builder {self.name} in {self.region}"

    def _find(self) -> tuple[str, str]:
        """Return the machine's id and state."""
        filters = [
            {"Name": "tag:Name", "Values": [self.name]},
            {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
        ]
        with self._one_line():
            response = self._ec2.describe_instances(Filters=filters)
            states = {
                str(instance["InstanceId"]): str(instance["State"]["Name"])
                for reservation in response["Reservations"]
                for instance in reservation["Instances"]
            }
        if not states:
            raise SlipwayError(f"{self._title}: there is none; `pulumi up --refresh` makes it anew")
        if len(states) > 1:
            ids = one_line(", ".join(sorted(states)), 400)
            raise SlipwayError(f"{self._title}: several machines have this name: {ids}")
        ((instance, state),) = states.items()
        if not _ID.fullmatch(instance):
            raise SlipwayError(f"{self._title}: EC2 answers with '{one_line(instance)}', which is no instance's id")
        return instance, one_line(state)

    def _try(self, call: Any, **arguments: Any) -> str:
        """Make a call; return AWS's reason if the call must be retried, and an empty text if it succeeded."""
        with self._one_line():
            try:
                call(**arguments)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _RETRIED:
                    raise
                return one_line(reason(error), 400)
        return ""

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """Turn a refusal of AWS, or an answer of another shape than documented, into a line."""
        try:
            yield
        except (*FAILURES, *SHAPE) as error:
            raise SlipwayError(f"{self._title}: {one_line(reason(error), 400)}") from None
