"""The HTTP server of the played cloud, on loopback."""

import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from tests.played_cloud.account import Account, TooFast
from tests.played_cloud.digitalocean_api import DigitalOceanApi
from tests.played_cloud.lambda_api import PREFIX, LambdaApi
from tests.played_cloud.runpod_api import RunPodApi

WRITE, READ = "write", "read"
# By the word that configs use. Each has a prefix, which no path of another API begins with.
_APIS: dict[str, type[LambdaApi | DigitalOceanApi | RunPodApi]] = {
    "lambda": LambdaApi,
    "digitalocean": DigitalOceanApi,
    "runpod": RunPodApi,
}


@dataclass
class Fault:
    """An answer that a call gets.

    call       method and end of the path: `POST /launch`
    status     of the answer; 0 closes the connection without an answer
    done       whether the call is done all the same
    seconds    delay of the answer
    retry_after   its header, if any
    body       of the answer; an error of its own by default
    """

    call: str
    status: int
    times: int = 1
    done: bool = False
    seconds: float = 0.0
    retry_after: int | None = None
    body: Any = None


@dataclass
class PlayedCloud:
    """The server, and what a test sees of it.

    keys      rights (WRITE or READ) by API key
    asked     calls as `METHOD path`
    """

    account: Account
    keys: dict[str, str]
    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, key: str, body: Mapping[str, Any]) -> tuple[int, Any, dict[str, str]]:
        """Return status, answer and headers of a call."""
        call = f"{method} {path}"
        self.asked.append(call)
        fault = next((each for each in self.faults if each.times > 0 and self._meets(each, call)), None)
        if fault:
            fault.times -= 1
            headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            if fault.done:
                self._answer(method, path, key, body)
            time.sleep(fault.seconds)
            return fault.status, fault.body or {"error": {"code": "played", "message": "a played fault"}}, headers
        try:
            status, answer = self._answer(method, path, key, body)
        except TooFast as wait:
            return *self._api(path).refusals[429], {"Retry-After": str(math.ceil(float(wait.args[0])))}
        return status, answer, {}

    @staticmethod
    def _meets(fault: Fault, call: str) -> bool:
        method, _, end = fault.call.partition(" ")
        return call.startswith(f"{method} ") and call.endswith(end)

    def _answer(self, method: str, path: str, key: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        api = self._api(path)
        rights = self.keys.get(key)
        if rights is None:
            return api.refusals[401]
        if method != "GET" and rights != WRITE:
            return api.refusals[403]
        return api.answer(method, path.removeprefix(api.prefix), body)

    def _api(self, path: str) -> LambdaApi | DigitalOceanApi | RunPodApi:
        found = (api for api in _APIS.values() if path.startswith(f"{api.prefix}/"))
        return next(found, LambdaApi)(self.account)

    def url_of(self, cloud: str) -> str:
        """Return the URL of a cloud's API."""
        return self.url.removesuffix(PREFIX) + _APIS[cloud].prefix


@contextmanager
def serve(cloud: PlayedCloud, port: int = 0) -> Iterator[PlayedCloud]:
    """Serve a played cloud on loopback until its machines end; its `url` is that of Lambda's API."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            path, _, query = self.path.partition("?")
            body = json.loads(self.rfile.read(length) or b"{}") if length else dict(parse_qsl(query))
            key = str(self.headers.get("Authorization", "")).removeprefix("Bearer ")
            status, answer, headers = cloud.answer(self.command, path, key, body)
            if not status:
                self.close_connection = True
                return
            text = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {
                **headers,
                "Content-Type": "application/json",
                "Content-Length": str(len(text)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _handle

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    cloud.url = f"http://127.0.0.1:{server.server_port}{PREFIX}"
    try:
        yield cloud
    finally:
        cloud.account.close()
        server.shutdown()
        server.server_close()
