"""HTTP calls with limits: the APIs of clouds and of the tailnet, and users' keys at GitHub.

A call follows no redirect, which could take a secret to another host. Its answer is limited in size, and the whole call
in time. Errors are one sentence and repeat nothing that was sent as a secret.
"""

import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from components.settings.mask_secrets import mask_parts

CALL_SECONDS = 60.0
MOST_BYTES = 16 * 1024 * 1024
_MOST_OF_AN_ERROR = 65536


class ApiError(Exception):
    """A call that failed, as one sentence without a secret.

    status        HTTP status; 0 if there was none
    code          the server's own word for the error, such as `global/quota-exceeded`
    retry_after   seconds after which the server wants the call again; 0 if it does not say
    """

    def __init__(self, text: str, status: int = 0, code: str = "", retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.code, self.retry_after = status, code, retry_after

    @property
    def denied(self) -> bool:
        """Return whether the server does not accept the credentials for this call."""
        return self.status in (401, 403)

    @property
    def too_soon(self) -> bool:
        """Return whether the server has not done the call and wants it later."""
        return self.status == 429

    @property
    def refused(self) -> bool:
        """Return whether the request is at fault: the same request fails again."""
        return 400 <= self.status < 500 and self.status not in (408, 429)

    @property
    def accepted(self) -> bool:
        """Return whether the server did the call, and its answer cannot be read."""
        return 200 <= self.status < 300

    @property
    def unclear(self) -> bool:
        """Return whether the server may have done the call."""
        return self.status in (0, 408) or self.status >= 500


def call(
    method: str,
    url: str,
    headers: Mapping[str, str],
    data: bytes | None = None,
    *,
    name: str = "",
    secrets: Iterable[str] = (),
    seconds: float = CALL_SECONDS,
    most: int = MOST_BYTES,
) -> bytes:
    """Return the body of an answer with status 2xx. Raises ApiError.

    name      of the call in errors
    secrets   texts that the call sends and no error may repeat
    seconds   limit from the first byte sent to the last one read
    """
    result: list[tuple[int, Mapping[str, str], bytes] | BaseException] = []
    status = [0]
    sent = {"User-Agent": "tailrack", "Accept-Encoding": "identity", **headers}

    def fetch() -> None:
        try:
            result.append(_fetch(most, status, method=method, url=url, headers=sent, data=data, timeout=seconds))
        except BaseException as error:  # noqa: BLE001 - the caller's thread judges it
            result.append(error)

    # The limits of sockets are per packet, and a name's resolution has none. The program does not wait for the thread.
    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(seconds)
    name = name or f"{method} {url.partition('?')[0]}"
    answer = result[0] if result else None
    if answer is None:
        raise ApiError(f"{name}: no complete answer within {seconds:.3g} s", status[0])
    if isinstance(answer, _TooLongError):
        raise ApiError(f"{name}: the answer has more than {most} bytes", status[0])
    if isinstance(answer, BaseException):
        raise ApiError(f"{name}: no readable answer ({_reason(answer)})", status[0])
    code, answered, body = answer
    if not 200 <= code < 300:
        raise _error_of(name, code, answered, body, secrets)
    return body


def json_object(
    method: str, url: str, headers: Mapping[str, str], data: bytes | None = None, *, name: str, secrets: Iterable[str]
) -> dict[str, Any]:
    """Return an answer that is a JSON object; empty for an answer that is none, such as null. Raises ApiError."""
    body = call(method, url, headers, data, name=name, secrets=secrets)
    try:
        answer = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ApiError(f"{name}: the answer is not JSON", 200) from None
    return answer if isinstance(answer, dict) else {}


def use_packages() -> None:
    """Continue this program with the checkout's Python if the present one has no `requests`.

    Commands in the state say `python3 -m ...`, because the stack may be destroyed on another machine.
    """
    try:
        import requests  # noqa: F401 - only whether it is there
    except ModuleNotFoundError:
        own = Path(".venv/bin/python")
        if own.is_file() and Path(sys.prefix).resolve() != own.parent.parent.resolve():
            os.execv(own, [str(own), *sys.orig_argv[1:]])  # noqa: S606 - the same program
        sys.exit("this Python has no package `requests`\nnext: run `make setup`, then the same command again")


class _TooLongError(Exception):
    pass


def _reason(error: BaseException) -> str:
    """Return the system's words for a failed connection, or the kind of error. Messages of `requests` have the URL."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


def _fetch(most: int, status: list[int], **request: Any) -> tuple[int, Mapping[str, str], bytes]:
    import requests  # takes a while, and most runs make no call

    # A log-in in ~/.netrc would replace the Authorization header.
    request |= {"auth": lambda request: request, "allow_redirects": False, "stream": True}
    with requests.Session() as session, session.request(**request) as response:
        status[0] = response.status_code
        limit = most if response.ok else _MOST_OF_AN_ERROR
        body = b""
        while part := response.raw.read(min(65536, limit + 1 - len(body))):
            body += part
            if len(body) > limit:
                if response.ok:
                    raise _TooLongError
                body = b""
                break
        return response.status_code, dict(response.headers.lower_items()), body


def _error_of(name: str, status: int, headers: Mapping[str, str], body: bytes, secrets: Iterable[str]) -> ApiError:
    """Return the error of an answer, in Lambda's shape (`error`: code, message), DigitalOcean's (id, message), that of
    RFC 9457 (detail) or of Tailscale (message).
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = {}
    answer = answer if isinstance(answer, dict) else {}
    details = answer["error"] if isinstance(answer.get("error"), dict) else answer
    hidden = tuple(secrets)
    code = _sentence(details.get("code" if "code" in details else "id"), hidden)
    message = _sentence(details.get("message" if "message" in details else "detail"), hidden)
    text = f"{name}: {' '.join(filter(None, (str(status), code, message)))}"
    wait = headers.get("retry-after", "")
    return ApiError(text, status, code, float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 9 else 0.0)


def _sentence(value: object, secrets: Iterable[str]) -> str:
    """Return a text of a server on one line, without words that are a part of a secret."""
    text = value[:_MOST_OF_AN_ERROR] if isinstance(value, str) else ""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return mask_parts(text, secrets)[:300].strip()
