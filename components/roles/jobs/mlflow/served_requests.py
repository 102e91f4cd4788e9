"""The requests that the MLflow server answers: tracking, the model registry and MLflow's accounts.

MLflow offers more: an assistant that runs programs for any client on a loopback address, webhooks and a gateway that
connect to other machines, jobs. A list of refused requests would miss the additions of the next release, so
served_requests.txt lists the served requests, and the server answers 404 to all others.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pkgutil import get_data
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]


def _templates() -> Iterator[tuple[str, str]]:
    listed = (get_data("components.roles", "jobs/mlflow/served_requests.txt") or b"").decode()
    for line in re.findall("^[A-Z].*", listed, re.MULTILINE):
        method, *paths = line.split()
        for path in paths:
            head, _, rest = path.partition("{")
            names, _, tail = rest.partition("}")
            for name in names.split(","):
                for prefix in ("",) if path.startswith("/") else ("/api/", "/ajax-api/"):
                    yield method, f"{prefix}{head}{name}{tail}"


def _pattern(templates: list[str]) -> re.Pattern[str]:
    parts = {"**": ".+", "*": "[^/]+"}
    patterns = ("".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*+)", path)) for path in templates)
    return re.compile("|".join(patterns))


LISTED = [*_templates()]
_SERVED = {name: _pattern([path for method, path in LISTED if method == name]) for name in dict(LISTED)}


def is_served(method: str, path: str) -> bool:
    """Return whether a request is in the list. `path` has its escapes decoded once, as MLflow receives it."""
    pattern = _SERVED.get(method)
    return pattern is not None and is_plain(path) and pattern.fullmatch(path) is not None


def is_plain(path: str) -> bool:
    """Return whether a path means the same however often a program decodes it."""
    while (decoded := unquote(path)) != path:
        path = decoded
    steps = path.split("/")[1:]
    return (
        path.startswith("/")
        and (path == "/" or not {"", ".", ".."} & set(steps))
        and not re.search(r"[\x00-\x1f\x7f\\]", path)
    )


def only_served(app: App) -> App:
    """Wrap an application so that it gets only the requests in the list; answer 404 to all others."""

    async def answer(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and is_served(scope["method"], scope["path"])):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body", "body": b"This server does not answer that request.\n"})
        else:
            await send({"type": "websocket.close", "code": 1008})

    return answer
