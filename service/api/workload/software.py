"""The software of a workload: a framework, an engine and libraries, each as a text or as an object."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from service.api.http.fields import BodyModel, Names, list_as_tuple

Words = Annotated[str, Field(max_length=200)]


class SoftwareNameRequest(BodyModel):
    """The name of software, and the versions that work."""

    name: Words
    """The name, such as `pytorch`; see `/frameworks`."""
    versions: Words | None = None
    """Versions, such as `2.3`, `>=2.3` or `>=2.3,<3`. Default: any version."""


_IMAGE = re.compile(r"(?=[^/:]+[/:])(?:[\w.:-]+/)*([\w.-]+)(?::(?:v?(\d+(?:\.\d+)*))?[\w.+-]*)?", re.ASCII)
"""A container image: registry and path, then the name, and the version in the tag."""


def written_software(value: Any) -> Any:
    """Returns software as one text such as `pytorch >=2.3`; it may be sent as an object or as a container image."""
    if isinstance(value, str) and (image := _IMAGE.fullmatch(value.strip())):
        return "==".join(filter(None, image.groups()))
    if not isinstance(value, dict):
        return value
    if not value.keys() <= SoftwareNameRequest.model_fields.keys() or not isinstance(value.get("name"), str):
        raise ValueError("software is a text, or an object with its `name` and optionally `versions`")
    return f"{value['name']} {value.get('versions') or ''}".strip()


SoftwareName = Annotated[Words, BeforeValidator(written_software, json_schema_input_type=Words | SoftwareNameRequest)]


class LibraryRequest(SoftwareNameRequest):
    """A library that the code uses."""

    required: Annotated[bool, Field(description="Whether the code cannot run without the library.")] = True


def library_by_name(value: Any) -> Any:
    """Returns a library as an object; it may be sent as its name alone."""
    return {"name": value} if isinstance(value, str) else value


Library = Annotated[LibraryRequest, BeforeValidator(library_by_name, json_schema_input_type=Words | LibraryRequest)]


class SoftwareRequest(BodyModel):
    """Software that the code is written for."""

    framework: SoftwareName | None = None
    """The framework, such as `pytorch`, `pytorch>=2.3` or an object; see `/frameworks`. Default: unknown, with a wider
    band."""
    engine: SoftwareName | None = None
    """The engine that serves, such as `vllm==0.6.0` or `vllm/vllm-openai:v0.8.5`; see `/frameworks`. Default: unknown,
    with a wider band."""
    cuda: Words | None = None
    """CUDA toolkit versions that work: `12.1` or `>=11.8,<13`. Default: any."""
    platforms: Names = ()
    """Platforms of the code, any of which is enough, such as `cuda` or `rocm`; see `/frameworks`."""
    libraries: Annotated[tuple[Library, ...], Field(max_length=50), BeforeValidator(list_as_tuple)] = ()
    """Libraries that the code uses, each a text such as `dali>=1.2` or an object."""
    custom_cuda_kernels: bool = False
    """Whether the code has its own CUDA kernels, which must run unchanged."""
