"""A client of a cloud's JSON API: limits, retries, and errors without secrets."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

CALL_SECONDS = 60  # limit of one call
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 1.0, 1.7, 15.0  # seconds between two attempts
LONGEST_WAIT = 120.0  # of a Retry-After; clouds announce the end of an hour's quota in it
_RETRIED = frozenset({0, 429, 500, 502, 503, 504})  # 0: no readable answer


class ApiError(Exception):
    """A call that failed, as one sentence without a secret.

    status   HTTP status; 0 without a readable answer
    code     the cloud's own word for the error, such as `global/quota-exceeded`
    retry_after   seconds after which the cloud wants the call again; 0 if it does not say
    """

    def __init__(self, text: str, status: int = 0, code: str = "", retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.code, self.retry_after = status, code, retry_after

    @property
    def denied(self) -> bool:
        """Return whether the cloud does not accept the credentials for this call."""
        return self.status in (401, 403)

    @property
    def too_soon(self) -> bool:
        """Return whether the cloud has not done the call and wants it later."""
        return self.status == 429

    @property
    def unclear(self) -> bool:
        """Return whether the cloud may have done the call."""
        return self.status == 0 or self.status >= 500


class Api:
    """The API at a URL, for one account.

    patience   seconds after which a call that the cloud cannot answer now fails
    """

    def __init__(self, base_url: str, api_key: str, *, patience: float = 300.0) -> None:
        self._base, self._key, self._patience = base_url.rstrip("/"), api_key, patience

    def get(self, path: str) -> Any:
        """Return the answer to a query. Raises ApiError if the cloud gives none in time."""
        return self._repeated("GET", path, None)

    def repeat(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Make a call that may be made twice, until the cloud answers it."""
        return self._repeated(method, path, body)

    def once(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """Make a call that must not be made twice."""
        return self._call(method, path, body)

    def _repeated(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                return self._call(method, path, body)
            except ApiError as error:
                wait = min(max(error.retry_after, pause), LONGEST_WAIT)
                if error.status not in _RETRIED or time.monotonic() + wait > until:
                    raise
            time.sleep(wait)
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        # The config check has verified the scheme; tests use a local server.
        request = urllib.request.Request(self._base + path, data, method=method)  # noqa: S310
        request.add_header("Authorization", f"Bearer {self._key}")
        request.add_header("Content-Type", "application/json")
        request.add_header("User-Agent", "tailrack")
        call = f"{method} {path.partition('?')[0]}"
        try:
            with _OPENER.open(request, timeout=CALL_SECONDS) as response:
                answer = json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise _error_of(call, error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiError(f"{call}: no readable answer ({type(error).__name__})") from None
        return answer if isinstance(answer, dict) else {}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: it would take the API key to another host."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Refuse the redirect; urllib then raises HTTPError."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _error_of(call: str, error: urllib.error.HTTPError) -> ApiError:
    """Return the error of an answer, in Lambda's shape (`error`: code, message), DigitalOcean's (id, message) or
    RFC 9457's (detail).
    """
    try:
        answer = json.loads(error.read(65536))
    except (OSError, ValueError, http.client.HTTPException):
        answer = {}
    answer = answer if isinstance(answer, dict) else {}
    details = answer["error"] if isinstance(answer.get("error"), dict) else answer
    code = _one_line(details.get("code" if "code" in details else "id"))
    message = _one_line(details.get("message" if "message" in details else "detail"))
    text = f"{call}: {' '.join(filter(None, (str(error.code), code, message)))}"
    return ApiError(text, error.code, code, _seconds(error.headers.get("Retry-After")))


def _one_line(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(letter if letter.isprintable() else " " for letter in text[:300]).strip()


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isdigit() else 0.0
