"""The service on the seed, as the tests of the API have it."""

from tests.api.conftest import app, client

__all__ = ["app", "client"]
