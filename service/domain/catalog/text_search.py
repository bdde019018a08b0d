"""Free text over the names of an instance type."""

import numpy as np

from service.domain.arrays import Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType


def matching(text: str, catalog: Catalog) -> Mask:
    """Returns where every word of the text is part of a name, family, GPU or alias; case does not matter."""
    words = text.lower().split()
    return np.array([all(word in names for word in words) for names in catalog.derive(_names)], np.bool_)


def _names(catalog: Catalog) -> list[str]:
    return [" ".join(_names_of(instance_type)).lower() for instance_type in catalog.instance_types]


def _names_of(instance_type: InstanceType) -> tuple[str, ...]:
    gpu = instance_type.gpu
    of_gpu = (gpu.id, gpu.name, gpu.vendor, gpu.architecture, *gpu.aliases) if gpu else ()
    return (instance_type.id, instance_type.family, instance_type.service, *of_gpu)
