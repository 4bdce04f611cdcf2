"""Launch options of every EC2 machine."""

from __future__ import annotations

from typing import Any

METADATA: dict[str, Any] = {
    "http_endpoint": "enabled",
    "http_tokens": "required",
    "http_put_response_hop_limit": 1,
    "instance_metadata_tags": "disabled",
}
"""IMDSv2 only. A container is one hop further away than the machine, so it cannot reach the machine's credentials."""

FAST: dict[str, Any] = {"iops": 6000, "throughput": 500}
"""Options of a gp3 volume: twice the default operations per second, and four times the default MiB/s."""
