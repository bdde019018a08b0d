"""The committed OpenAPI document, which `tests/api/http/test_document.py` compares with the one of the code.

Tests that read it need not make it: that takes seconds in each process.
"""

import json
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text(encoding="utf-8"))
"""A test that changes it copies it first."""
