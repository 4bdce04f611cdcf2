"""What every machine on EC2 is launched with."""

from __future__ import annotations

from typing import Any

METADATA: dict[str, Any] = {
    "http_endpoint": "enabled",
    "http_tokens": "required",
    "http_put_response_hop_limit": 1,
    "instance_metadata_tags": "disabled",
}
"""IMDSv2 only. A container is one hop further than the machine: it does not get at the machine's credentials."""

FAST: dict[str, Any] = {"iops": 6000, "throughput": 500}
"""Of a gp3 volume: twice the operations a second that it has by itself, and four times the MiB."""
