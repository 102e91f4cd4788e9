"""A small SMTP server for tests: `mail_server.py PORT FILE` adds each mail to a file as a line of JSON."""

from __future__ import annotations

import json
import socketserver
import ssl
import sys
from pathlib import Path


class Conversation(socketserver.StreamRequestHandler):
    """One connection: greets, takes mails, and records the envelope and the text of each."""

    server: MailServer

    def handle(self) -> None:
        """Answer each command as RFC 5321 says."""
        self._say("220 test")
        sender, recipients, login = "", list[str](), ""
        encrypted = isinstance(self.connection, ssl.SSLSocket)
        while line := self.rfile.readline().decode("latin-1").strip():
            word, rest = line[:4].upper(), line.partition(":")[2]
            if word == "EHLO" and self.server.context:
                self._say(f"250-test\r\n250 {'AUTH PLAIN' if encrypted else 'STARTTLS'}")
                continue
            if word == "STAR" and self.server.context:
                self._say("220 go on")
                self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
                self.setup_streams()
                encrypted = True
                continue
            if word == "AUTH":
                login = line.rpartition(" ")[2]
                self._say("235 ok")
                continue
            if word == "MAIL":
                sender, recipients = rest, []
            elif word == "RCPT" and (code := self.server.refuse.get(rest)):
                self._say(f"{code} refused")
                continue
            elif word == "RCPT":
                recipients.append(rest)
            elif word == "DATA":
                self._say("354 go on")
                text = b""
                while (part := self.rfile.readline()) not in (b".\r\n", b""):
                    text += part
                envelope = {"from": sender, "to": recipients, "encrypted": encrypted, "login": login}
                mail = {**envelope, "text": text.decode("utf-8", "replace")}
                with self.server.file.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(mail)}\n")
            elif word == "QUIT":
                self._say("221 bye")
                return
            self._say("250 ok")

    def setup_streams(self) -> None:
        """Read and write through TLS from now on."""
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", buffering=0)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    """The server.

    refuse    the code for each recipient that it refuses
    context   the certificate for STARTTLS; without one the server offers no encryption
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], file: Path) -> None:
        super().__init__(address, Conversation)
        self.file = file
        self.refuse: dict[str, int] = {}
        self.context: ssl.SSLContext | None = None


if __name__ == "__main__":
    MailServer(("0.0.0.0", int(sys.argv[1])), Path(sys.argv[2])).serve_forever()  # noqa: S104 the lab's network
