"""A fake metadata service of a provider, on a lab machine's loopback; its header `Server` says that it is a fake.

    python3 metadata_server.py FILE     FILE: the notice; without it there is none

It answers as EC2 (IMDSv2 only) and Google's metadata server do. AWS's notice is the JSON in the file.
"""

import hashlib
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ADDRESS = "169.254.169.254"
NOTICE = Path(sys.argv[1]) if __name__ == "__main__" else Path()
TOKEN = "a-token-of-the-fake"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server_version, sys_version = "a-fake-of-tailracks-lab", ""

    def do_PUT(self) -> None:
        """Give a token."""
        wanted = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200, TOKEN) if wanted else self._answer(400, "")

    def do_GET(self) -> None:
        """Answer as the provider whose path it is."""
        parts = urlsplit(self.path)
        if parts.path == "/latest/meta-data/spot/instance-action":
            self._aws()
        elif parts.path == "/computeMetadata/v1/instance/preempted":
            self._google({name: values[0] for name, values in parse_qs(parts.query).items()})
        else:
            self._answer(404, "")

    def _aws(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != TOKEN:
            self._answer(401, "")
        elif NOTICE.exists():
            self._answer(200, NOTICE.read_text())
        else:
            self._answer(404, "")

    def _google(self, query: dict[str, str]) -> None:
        if self.headers["Metadata-Flavor"] != "Google":
            self._answer(403, "")
            return
        end = time.monotonic() + float(query["timeout_sec"])
        while self._etag() == query["last_etag"] and time.monotonic() < end:
            time.sleep(0.1)
        self._answer(200, self._preempted())

    @staticmethod
    def _preempted() -> str:
        return "TRUE" if NOTICE.exists() else "FALSE"

    def _etag(self) -> str:
        return hashlib.sha256(self._preempted().encode()).hexdigest()[:16]

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", self._etag())
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


if __name__ == "__main__":
    ThreadingHTTPServer((ADDRESS, 80), Handler).serve_forever()
