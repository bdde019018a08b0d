"""Settings come from the environment, and a wrong one is reported in a sentence."""

import sys

import pytest

from service.app import upstream_of
from service.settings import Settings, SettingsWrong, read_settings


def test_every_setting_has_a_default() -> None:
    settings = read_settings()
    assert settings.database_url == "sqlite:///instance-selector.db"
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8000, 1)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_PORT", "9000")
    monkeypatch.setenv("DATABASE_URL", "sqlite:///plain.db")
    assert read_settings().port == 9000
    assert read_settings().database_url == "sqlite:///plain.db"
    monkeypatch.setenv("SELECTOR_DATABASE_URL", "sqlite:///ours.db")
    assert read_settings().database_url == "sqlite:///ours.db"


def test_what_the_command_line_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_PORT", "9000")
    assert read_settings(port=9001, host=None).port == 9001
    monkeypatch.setenv("DATABASE_URL", "sqlite:///elsewhere.db")
    assert Settings(database_url="sqlite:///here.db").database_url == "sqlite:///here.db"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SELECTOR_PORT", "abc"),
        ("SELECTOR_PORT", "0"),
        ("SELECTOR_PORT", "70000"),
        ("SELECTOR_WORKERS", "-1"),
        ("SELECTOR_POLL_SECONDS", "0"),
        ("SELECTOR_POLL_SECONDS", "nan"),
        ("SELECTOR_MAX_BODY_BYTES", "many"),
        ("SELECTOR_LOG_LEVEL", "loud"),
        ("SELECTOR_FEED_URLS", "azure"),
        ("SELECTOR_FEED_KEYS", '{"lambda": "a key"}'),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsWrong, match=rf"^{name}: .*\.$"):
        read_settings()


def test_a_key_may_have_a_variable_of_its_own_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_FEED_KEYS__LAMBDA", "hidden-key")
    settings = read_settings()
    assert settings.feed_keys["lambda"].get_secret_value() == "hidden-key"
    assert "hidden-key" not in f"{settings!r} {settings}"
    monkeypatch.setenv("SELECTOR_FEED_KEYS__LAMBDA", "hidden-key\n")
    with pytest.raises(SettingsWrong, match="no spaces") as wrong:
        read_settings()
    assert "hidden-key" not in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "SELECTOR_FEED_KEYS__LAMBADA",
            "a-key",
            "SELECTOR_FEED_KEYS: No feed is called 'lambada'. Did you mean lambda?",
        ),
        ("SELECTOR_FEED_KEYS__AZURE", "a-key", "SELECTOR_FEED_KEYS: No feed is called 'azure'."),
        ("SELECTOR_FEED_URLS", '{"azur": "https://a.example"}', "SELECTOR_FEED_URLS: .*Did you mean azure"),
        ("SELECTOR_FEEDS", "azure, lambada", "SELECTOR_FEEDS: .*Did you mean lambda?"),
    ],
)
def test_a_setting_for_no_feed_is_wrong(monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsWrong, match=message):
        upstream_of(read_settings())


def test_keys_and_mirrors_belong_to_feeds_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_FEEDS", "azure, lambda")
    monkeypatch.setenv("SELECTOR_FEED_KEYS__AWS_ACCOUNT", "default")
    monkeypatch.setenv("SELECTOR_FEED_URLS__AWS_BULK", "https://mirror.example")
    upstream = upstream_of(read_settings())
    assert upstream.urls == {"aws-bulk": "https://mirror.example"}
    assert upstream.keys == {"aws-account": "default"}
    assert {"azure", "lambda"}.isdisjoint(upstream.off)
    assert "oci" in upstream.off


def test_all_wrong_settings_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_PORT", "abc")
    monkeypatch.setenv("SELECTOR_WORKERS", "abc")
    with pytest.raises(SettingsWrong, match=r"(?s)SELECTOR_PORT: .*SELECTOR_WORKERS: "):
        read_settings()


def test_tracing_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_TRACE_URL", "http://127.0.0.1:4318/v1/traces")
    assert read_settings().trace_url
    monkeypatch.setitem(sys.modules, "service.server.tracing", None)
    with pytest.raises(SettingsWrong, match=r"SELECTOR_TRACE_URL: .*instance-selector\[tracing\]"):
        read_settings()
    monkeypatch.delenv("SELECTOR_TRACE_URL")
    assert not read_settings().trace_url
