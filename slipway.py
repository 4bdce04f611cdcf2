"""What a flavor of your own may import: names here keep their meaning from one release of Slipway to the next.

A flavor is a module or package of the folder `flavors`, with a `Config`, a subclass of `StackConfig` with its keys, and
`images(config)`, which returns an `ImageSpec` for each image.
"""

from pydantic import Field

from containers.errors import SlipwayError
from stacks.config.model import Reference
from stacks.config.stack_config import StackConfig
from stacks.jobs.requirements import Requirements
from stacks.spec import ImageSpec, Outside, Sibling
from stacks.tags import Suffix

__all__ = [
    "Field",
    "ImageSpec",
    "Outside",
    "Reference",
    "Requirements",
    "Sibling",
    "SlipwayError",
    "StackConfig",
    "Suffix",
]
