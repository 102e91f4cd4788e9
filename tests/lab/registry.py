"""A fake: an image registry that holds one image and lets one account in. Runs on a lab machine with Python alone.

Speaks as much of the distribution API as Enroot asks for: a token for a log-in, a manifest, blobs. Every request is one
line in the log, with whether it was let in and never with a password.

    python3 registry.py FOLDER PORT USER     FOLDER has layer.tar.gz, password, cert.pem and key.pem
"""

import base64
import gzip
import hashlib
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])
PORT, USER = int(sys.argv[2]), sys.argv[3]
TOKEN = "token-of-the-fake-registry"
IMAGE = "/v2/team/hello"


def digest(data: bytes) -> str:
    """The name of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


LAYER = (FOLDER / "layer.tar.gz").read_bytes()
CONFIG = json.dumps(
    {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["GREETING=hello"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(gzip.decompress(LAYER))]},
        "history": [{"created_by": "the lab"}],
    }
).encode()
KIND = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": KIND,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(CONFIG),
            "digest": digest(CONFIG),
        },
        "layers": [
            {
                "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                "size": len(LAYER),
                "digest": digest(LAYER),
            }
        ],
    }
).encode()


class Registry(BaseHTTPRequestHandler):
    """What Enroot asks for, and 404 for the rest."""

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """A token for the right log-in; with the token, the image."""
        given = self.headers.get("Authorization", "")
        if self.path.startswith("/token"):
            login = f"{USER}:{(FOLDER / 'password').read_text().strip()}"
            right = given == f"Basic {base64.b64encode(login.encode()).decode()}"
            self.answer(200 if right else 401, json.dumps({"token": TOKEN}).encode() if right else b"{}")
        elif given != f"Bearer {TOKEN}":
            realm = f'Bearer realm="https://registry.lab:{PORT}/token",service="registry",scope="repository:team/hello:pull"'
            self.answer(401, b"{}", [("WWW-Authenticate", realm)])
        elif self.path in (f"{IMAGE}/manifests/1", f"{IMAGE}/manifests/{digest(MANIFEST)}"):
            self.answer(200, MANIFEST, [("Content-Type", KIND), ("Docker-Content-Digest", digest(MANIFEST))])
        elif self.path == f"{IMAGE}/manifests/torn":
            # A manifest whose layer is another one than it says: the import breaks off in its middle.
            torn = MANIFEST.replace(digest(LAYER).encode(), digest(b"another").encode())
            self.answer(200, torn, [("Content-Type", KIND), ("Docker-Content-Digest", digest(torn))])
        elif self.path == f"{IMAGE}/blobs/{digest(CONFIG)}":
            self.answer(200, CONFIG)
        elif self.path.startswith(f"{IMAGE}/blobs/"):
            self.answer(200, LAYER)
        else:
            self.answer(404, b"{}")

    def answer(self, status: int, body: bytes, headers: list[tuple[str, str]] | None = None) -> None:
        """Send one answer."""
        self.send_response(status)
        for name, value in headers or []:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("0.0.0.0", PORT), Registry)  # noqa: S104 - inside a lab machine
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "cert.pem", FOLDER / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
