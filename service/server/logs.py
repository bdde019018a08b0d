"""The log of the server: one line per event, as text or as JSON."""

import json
import logging
from datetime import UTC, datetime
from textwrap import indent
from typing import Any, Literal

LogFormat = Literal["text", "json"]


class TextFormatter(logging.Formatter):
    """Formats an event as a line for people: time, level, message, and its fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of an event."""
        parts = [_time_of(record), record.levelname.lower(), _on_one_line(record.getMessage())]
        parts += [f"{name}={_as_one_word(value)}" for name, value in _fields_of(record).items() if value is not None]
        line = " ".join(parts)
        # Only an event begins at the left, whatever the text of an exception has in it.
        return f"{line}\n{indent(self.formatException(record.exc_info), '  ')}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """Formats an event as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of an event."""
        event = {"time": _time_of(record), "level": record.levelname.lower(), "logger": record.name}
        event |= {"message": record.getMessage(), **_fields_of(record)}
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False, default=str)


def log_config(level: str, log_format: LogFormat) -> dict[str, Any]:
    """The configuration for `logging.config.dictConfig`; uvicorn applies it in each of its processes."""
    formatter = {"text": TextFormatter, "json": JsonFormatter}[log_format]
    return {
        "version": 1,
        # Loggers that were created on import would otherwise be silent.
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"level": level.upper(), "handlers": ["stderr"]},
    }


def _on_one_line(text: str) -> str:
    """Returns the text on one line, with escapes of JSON: a request could otherwise add lines to the log."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _as_one_word(value: Any) -> str:
    """Returns a value as text, and as JSON if it could be taken for several fields or lines."""
    text = str(value)
    return text if text.isprintable() and not set(text) & {" ", '"'} else json.dumps(text)


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields
