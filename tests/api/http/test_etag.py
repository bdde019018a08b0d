"""Answers that are asked for more than once are given again without asking the app, until the catalog moves."""

from starlette.types import Receive, Scope, Send

from service.api.http.etag import RememberedAnswers
from tests.api.raw_asgi import Answer, call


class Counting:
    """An app whose answers carry an ETag and the number of times that it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.version = "1"

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        self.asked += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"etag", self.version.encode())]})
        await send({"type": "http.response.body", "body": b"%d" % self.asked})


class Asking:
    """The app behind its memory."""

    def __init__(self) -> None:
        self.app = Counting()
        self._remembered = RememberedAnswers(self.app, newest=lambda: self.app.version)

    def get(self, target: str, tag: bytes = b"") -> Answer:
        return call(self._remembered, "GET", target, headers=((b"if-none-match", tag),) if tag else ())


def test_what_is_asked_again_is_remembered_from_then_on() -> None:
    asking = Asking()
    assert [asking.get("/").body for _ in range(4)] == [b"1", b"2", b"2", b"2"]
    assert asking.get("/?other").body == b"3"
    assert asking.get("/").body == b"2"


def test_nothing_is_remembered_past_a_change_of_the_catalog() -> None:
    asking = Asking()
    for _ in range(3):
        asking.get("/")
    asking.app.version = "2"
    assert asking.get("/").body == b"3"
    assert asking.get("/").body == b"3"


def test_a_client_that_has_the_answer_is_told_so_however_often_it_was_asked() -> None:
    asking = Asking()
    for _ in range(4):
        again = asking.get("/", b"1")
        assert (again.status, again.body) == (304, b"")
    assert asking.get("/", b"0").status == 200
