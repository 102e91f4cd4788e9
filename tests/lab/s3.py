"""S3 on a lab machine, over TLS on its loopback: moto's server, which holds requests against the keys that it gave.

A fake is one thing: moto knows no size, so while a file `full` is in the folder it answers as a MinIO without room.

    python3 s3.py FOLDER PORT [ADDRESS]     FOLDER has cert.pem and key.pem, and gets key.json: the access key to the
                                            bucket `lab`; and `sent`: who got how many bytes of which object, by line
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Read by moto when it is imported: no request goes by without a key.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "0"
# The host's name is no bucket's.
os.environ["S3_IGNORE_SUBDOMAIN_BUCKETNAME"] = "1"

from moto.core import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

FOLDER, PORT, ADDRESS = Path(sys.argv[1]), int(sys.argv[2]), (*sys.argv[3:], "127.0.0.1")[0]
NO_ROOM = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>XMinioStorageFull</Code>
<Message>Storage backend has reached its minimum free drive threshold.</Message></Error>"""
POLICY = {"Effect": "Allow", "Action": "s3:*", "Resource": ["arn:aws:s3:::*"]}


def with_room(app: WSGIApplication) -> WSGIApplication:
    """Take nothing while the file is there."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT" and (FOLDER / "full").exists():
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("507 Insufficient Storage", [("Content-Type", "application/xml")])
            return [NO_ROOM]
        return app(environ, start)

    return answer


def counted(app: WSGIApplication) -> WSGIApplication:
    """Write down the bytes of objects that are sent."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        for part in app(environ, start):
            if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].count("/") > 1:
                with (FOLDER / "sent").open("a") as file:
                    file.write(f"{environ['REMOTE_ADDR']} {environ['PATH_INFO']} {len(part)}\n")
            yield part

    return answer


def main() -> None:
    """Make a bucket and a key, and serve."""
    users: Any = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    users.create_user("us-east-1", "keeper")
    users.put_user_policy("keeper", "all", json.dumps({"Version": "2012-10-17", "Statement": [POLICY]}))
    key = users.create_access_key("keeper")
    (FOLDER / "key.json").write_text(json.dumps([key.access_key_id, key.secret_access_key]))
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket("lab", "us-east-1")
    app = counted(with_room(DomainDispatcherApplication(create_backend_app)))
    server = make_server(ADDRESS, PORT, app, threaded=True)
    server.ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.ssl_context.load_cert_chain(FOLDER / "cert.pem", FOLDER / "key.pem")
    # Otherwise one client that stops in its handshake stops all others.
    server.socket = server.ssl_context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
