"""A fake: an OpenID provider that logs everyone in as the person in its file `who`. Runs on a lab machine.

It does as much as opkssh needs: discovery, keys, a log-in that asks nothing, and a signed ID token.

    python3 identity_provider.py ISSUER CLIENT     in a folder with who (JSON), cert.pem, key.pem and signer.pem
"""

import base64
import json
import ssl
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ISSUER, CLIENT = sys.argv[1:]
DISCOVERY = {
    "issuer": ISSUER,
    **{name: f"{ISSUER}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")},
    "id_token_signing_alg_values_supported": ["RS256"],
}


def encoded(data: bytes) -> str:
    """Base64 as in a JSON web token."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*words: str, stdin: str = "") -> bytes:
    """What openssl prints."""
    return subprocess.run(["openssl", *words], input=stdin.encode(), capture_output=True, check=True).stdout


class Provider(BaseHTTPRequestHandler):
    """The provider's pages. The code of a log-in is its nonce."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/authorization_endpoint" and query["client_id"] == CLIENT:
            self.send_response(302)
            self.send_header("Location", f"{query['redirect_uri']}?code={query['nonce']}&state={query['state']}")
            self.end_headers()
        elif url.path == "/jwks_uri":
            modulus = openssl("rsa", "-in", "signer.pem", "-noout", "-modulus").decode().strip().partition("=")[2]
            self.answer({"keys": [{"kty": "RSA", "kid": "lab", "e": "AQAB", "n": encoded(bytes.fromhex(modulus))}]})
        else:
            self.answer(DISCOVERY)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        now, who = int(time.time()), json.loads(Path("who").read_text(encoding="utf-8"))
        claims = {"iss": ISSUER, "aud": CLIENT, "iat": now, "exp": now + 3600, "nonce": form["code"][0], **who}
        header = {"alg": "RS256", "typ": "JWT", "kid": "lab"}
        text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        token = f"{text}.{encoded(openssl('dgst', '-sha256', '-sign', 'signer.pem', stdin=text))}"
        self.answer({"access_token": "none", "token_type": "Bearer", "id_token": token})

    def answer(self, body: dict[str, Any]) -> None:
        """Send JSON."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


server = ThreadingHTTPServer(("", urlsplit(ISSUER).port or 443), Provider)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
