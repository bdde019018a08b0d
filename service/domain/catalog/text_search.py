"""Free text over the names that a machine goes by."""

import numpy as np

from service.domain.arrays import Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType


def matching(text: str, catalog: Catalog) -> Mask:
    """Where every word of the text is found in a name, family, GPU or alias of the machine; case does not matter."""
    haystacks = catalog.memory.get_or_compute("search", lambda: [names(kind) for kind in catalog.instance_types])
    words = text.lower().split()
    return np.array([all(word in haystack for word in words) for haystack in haystacks], np.bool_)


def names(kind: InstanceType) -> str:
    gpu = (kind.gpu.id, kind.gpu.name, kind.gpu.vendor, kind.gpu.architecture, *kind.gpu.aliases) if kind.gpu else ()
    return " ".join((kind.id, kind.family, kind.service, *gpu)).lower()
