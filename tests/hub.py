"""A fake of Hugging Face's API: one repository, listed in pages, whose large files another host serves."""

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "datasets/ada/pictures"
# Files from this size are in large file storage.
LARGE = 1000
_PAGE = 2


@contextmanager
def hub(files: Mapping[str, bytes], token: str, name: str = "127.0.0.1", tls: Path | None = None) -> Iterator[int]:
    """Serve a private repository. `name`: another name of this host; `tls`: a folder with cert.pem and key.pem."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address, scheme = urlsplit(self.path), "https" if tls else "http"
            path, authorized = unquote(address.path), self.headers["Authorization"] == f"Bearer {token}"
            if path.startswith("/storage/"):
                # As S3, which refuses a second way of logging in.
                self.answer(400 if self.headers["Authorization"] else 200, files[path.removeprefix("/storage/")])
            elif not authorized:
                self.answer(401, b"Invalid username or password.")
            elif path == f"/api/{REPOSITORY}/tree/{COMMIT}":
                at = int(parse_qs(address.query).get("cursor", ["0"])[0])
                rows = [{"type": "directory", "path": "large", "size": 0, "oid": "1"}, *map(row, sorted(files))]
                following = f"{scheme}://{self.headers['Host']}{path}?recursive=true&cursor={at + _PAGE}"
                link = {"Link": f'<{following}>; rel="next"'} if at + _PAGE < len(rows) else {}
                self.answer(200, json.dumps(rows[at : at + _PAGE]).encode(), link)
            else:
                file = path.removeprefix(f"/{REPOSITORY}/resolve/{COMMIT}/")
                if len(files.get(file, b"")) >= LARGE:
                    place = f"{scheme}://{name}:{server.server_port}/storage/{quote(file)}"
                    self.answer(302, b"", {"Location": place})
                else:
                    self.answer(200 if file in files else 404, files.get(file, b""))

        do_HEAD = do_GET

        def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    def row(path: str) -> dict[str, object]:
        large = {"lfs": {"oid": hashlib.sha256(files[path]).hexdigest(), "size": len(files[path])}}
        return {"type": "file", "path": path, "size": len(files[path])} | (large if len(files[path]) >= LARGE else {})

    server = ThreadingHTTPServer(("0.0.0.0", 0), Hub)  # noqa: S104 the lab's nodes reach it by their own networks
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
