"""The service on the seed, as the tests of the API have it."""

from tests.api.conftest import app, client, client_to_write

__all__ = ["app", "client", "client_to_write"]
