"""Reads the settings from the environment. Only `app.py` and `cli/` use this module, and pass the settings on."""

from typing import Annotated

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from service.domain.errors import Unusable
from service.server.logs import LogFormat

PREFIX = "SELECTOR_"


class SettingsWrong(Unusable):
    """A setting has an invalid value; the message names it and says which values are valid."""


def _storage_that_exists(url: str) -> str:
    """Raises `ValueError` for a storage that the library `limits` does not know, or whose driver is not installed."""
    if url:
        from limits.errors import ConfigurationError
        from limits.storage import storage_from_string

        try:
            storage_from_string(url)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
    return url


def _tracing_that_is_installed(url: str) -> str:
    """Raises `ValueError` if traces are to be sent but the packages for tracing are missing."""
    if url:
        try:
            import service.server.tracing  # noqa: F401 - only whether it can be imported
        except ImportError:
            raise ValueError("tracing needs further packages: pip install 'instance-selector[tracing]'") from None
    return url


def _key_for_a_header(key: SecretStr) -> SecretStr:
    """Raises `ValueError` for a key that cannot be sent in an HTTP header; the message does not show the key."""
    text = key.get_secret_value()
    if not text or not all("!" <= letter <= "~" for letter in text):
        raise ValueError("a key has only printable ASCII characters, and no spaces")
    return key


class Settings(BaseSettings):
    """All settings, each read from an environment variable `SELECTOR_<NAME>`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, populate_by_name=True, extra="ignore"
    )

    database_url: Annotated[str, Field(validation_alias=AliasChoices(f"{PREFIX}DATABASE_URL", "DATABASE_URL"))] = (
        "sqlite:///instance-selector.db"
    )
    """SQLite or Postgres. Also read from `DATABASE_URL`."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """The port to listen on."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Server processes."""
    poll_seconds: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Seconds between two checks for a changed catalog."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024**2)] = 4 * 1024**2
    """The largest request body."""
    connections_per_address: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Open connections of one client address."""
    batches_at_once: Annotated[int, Field(ge=1, le=1000)] = 3
    """Batches that a process answers at a time."""
    batch_cpu_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """CPU seconds that the answer to a batch may take."""
    batch_answer_bytes: Annotated[int, Field(ge=1024, le=10 * 1000**3)] = 100_000_000
    """The largest answer to a batch."""
    drain_seconds: Annotated[float, Field(ge=0, le=600)] = 0.0
    """How long `/readyz` answers 503 before the service stops."""
    grace_seconds: Annotated[int, Field(ge=0, le=600)] = 30
    """How long answers under way may take while the service stops."""
    allowed_hosts: Annotated[str, Field(max_length=10_000)] = ""
    """Hosts to answer for, with commas; `*.example.org` allows all below it."""
    feeds: Annotated[str, Field(max_length=1000)] = "on"
    """Feeds of prices that are read in the background: `on`, `off`, or names with commas."""
    feed_urls: dict[str, str] = {}
    """Mirrors by feed, as JSON: `{"azure": "https://mirror.example/azure"}`."""
    feed_keys: dict[str, Annotated[SecretStr, AfterValidator(_key_for_a_header)]] = {}
    """Keys of sellers by feed, each in a variable of its own: `SELECTOR_FEED_KEYS__LAMBDA`."""
    open_reads: bool = True
    """Whether reading needs no API key; writing always needs one."""
    development_key: Annotated[str, Field(pattern=r"^([!-~]{16,200})?$")] = ""
    """The token of the key that `serve --development-key` creates: 16 to 200 printable characters."""
    key: Annotated[str, Field(pattern=r"^[!-~]{0,1000}$")] = ""
    """The API key that `estimate --url` sends to another service."""
    requests_per_minute_and_key: Annotated[int, Field(ge=0, le=10_000_000)] = 6000
    """Requests that a key may send in a minute; 0: any number."""
    requests_per_minute_and_address: Annotated[int, Field(ge=0, le=10_000_000)] = 1200
    """Requests without a key from one address in a minute; 0: any number."""
    measurements_per_key: Annotated[int, Field(ge=0, le=100_000_000)] = 100_000
    """Measurements that one API key may store."""
    rate_limit_storage_url: Annotated[str, AfterValidator(_storage_that_exists), Field(max_length=1000)] = ""
    """Where processes share their counts, such as `redis://cache:6379`."""
    trace_url: Annotated[str, AfterValidator(_tracing_that_is_installed), Field(max_length=1000)] = ""
    """Where traces are sent by OTLP over HTTP, such as `http://collector:4318/v1/traces`."""
    access_log: bool = False
    """Whether to log each request; slow ones always are."""
    log_format: LogFormat = "text"
    """`text` or `json`."""
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
    """How much is logged."""


def read_settings(**overrides: object) -> Settings:
    """Returns the settings of this process. Raises `SettingsWrong` with a sentence for each invalid one."""
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})  # type: ignore[arg-type]
    except SettingsError as error:  # a variable that must hold JSON holds something else
        field = str(error).partition('"')[2].partition('"')[0]
        raise SettingsWrong(f"{PREFIX}{field.upper()}: the value is not JSON.") from None
    except ValidationError as error:
        raise SettingsWrong("\n".join(_sentence(fault) for fault in error.errors())) from None


def _sentence(error: object) -> str:
    assert isinstance(error, dict)
    name = str(error["loc"][0])
    variable = name if name.isupper() else f"{PREFIX}{name.upper()}"
    return f"{variable}: {error['msg']}."
