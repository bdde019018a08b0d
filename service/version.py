"""The version of this software."""

from importlib.metadata import version

VERSION = version("instance-selector")
