"""The evidence of warm layers: the stack's signer attested each one, with the facts that the image states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.warm import warm_image
from cli.warm.warm_image import WarmLayer
from containers.errors import SlipwayError, one_line
from containers.evidence import cosign, shape
from containers.evidence.signer import ImageSigner
from containers.image.registry_image import Image
from containers.registry.credentials import Login


@dataclass(frozen=True)
class AttestedLayer:
    """A warm layer, and how the layer that this image added was made; ``made`` is empty for those that it kept."""

    layer: WarmLayer
    made: Mapping[str, Any]

    @property
    def summary(self) -> str:
        """The layer's machines and its origin, as one clause."""
        record = self.layer.record
        host = ", ".join(line for line in record.machine if not line.startswith("processor "))
        versions = f"torch {record.torch or 'none'}, Triton {record.triton or 'none'}"
        made = f", made {self.made['finished']} on {self.made['job'] or self.made['host']}" if self.made else ""
        return one_line(f"{host or 'no GPU'}: {versions}, {record.script} {record.sha256[:12]}{made}", 500)


def attested_layers(image: Image, warm: Image, signer: ImageSigner, login: Login | None) -> list[AttestedLayer]:
    """Return the warm layers that an image has above ``image``, each verified as attested by a signer.

    Raises SlipwayError: it is not made of ``image`` and warm layers of it alone; the signer attested none of them, or
    not this one, or as a layer for something else.
    """
    layers = warm_image.warm_layers(image, warm)
    predicates = cosign.every_attested(warm.reference, "warm", signer, login)
    with shape.expected(f"{warm.reference}: warm"):
        attested = {
            str(entry["diffId"]): (dict(entry), predicate["made"])
            for predicate in predicates
            if predicate["image"] == image.digest
            for entry in predicate["layers"]
        }
        result = []
        for layer in layers:
            entry, made = attested.get(layer.diff_id, ({}, {}))
            if entry != layer.attested():
                what = "as one for something else" if entry else "by nobody who signs for the stack"
                raise SlipwayError(f"{warm.reference}: its layer for {layer.record.where} is attested {what}")
            result.append(AttestedLayer(layer, made if made["layer"] == layer.diff_id else {}))
    return result
