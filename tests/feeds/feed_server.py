"""A real HTTP server that answers as a feed would, or fails as one would."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FeedServer:
    """Replies by path, each a list of which the last one repeats; `requests` are the path and headers of each."""

    replies: dict[str, list[Reply]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        self.requests.append((path, dict(handler.headers)))
        replies = self.replies.get(path, [reply(404)])
        (replies.pop(0) if len(replies) > 1 else replies[0])(handler)


def reply(status: int = 200, body: bytes = b"", **headers: str) -> Reply:
    """An answer; `_` in the name of a header is `-`."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        own = {"Content-Length": str(len(body))}
        for name, value in {**own, **{name.replace("_", "-"): value for name, value in headers.items()}}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return send


@contextmanager
def feed_server() -> Iterator[FeedServer]:
    state = FeedServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                state.answer(self)
            except OSError:  # the client hung up, as it should on a body without end
                self.close_connection = True

        do_POST = do_GET  # noqa: N815 - the name that the library calls

        def log_message(self, *_arguments: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
