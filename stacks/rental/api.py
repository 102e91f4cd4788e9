"""A client of a cloud's JSON API for one account: retries, and the account's key."""

import json
import time
from collections.abc import Mapping
from typing import Any

from stacks.http_client import ApiError, json_object

FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 1.0, 1.7, 15.0  # seconds between two attempts
LONGEST_WAIT = 120.0  # of a Retry-After; clouds announce the end of an hour's quota in it
_RETRIED = frozenset({0, 408, 429, 500, 502, 503, 504})  # 0: no readable answer


class Api:
    """The API at a URL, for one account.

    patience   seconds after which a call that the cloud cannot answer now fails
    """

    def __init__(self, base_url: str, api_key: str, *, patience: float = 300.0) -> None:
        self._base, self._key, self._patience = base_url.rstrip("/"), api_key, patience

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer to a query. Raises ApiError if the cloud gives none in time."""
        return self.repeat("GET", path)

    def repeat(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make a call that may be made twice, until the cloud answers it."""
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                return self.once(method, path, body)
            except ApiError as error:
                wait = min(max(error.retry_after, pause), LONGEST_WAIT)
                retried = error.status in _RETRIED or error.accepted
                if not retried or time.monotonic() + wait > until:
                    raise
            time.sleep(wait)
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)

    def delete(self, path: str) -> None:
        """Delete something; what is gone already is no error."""
        try:
            self.repeat("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def once(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Make a call that must not be made twice."""
        return json_object(
            method,
            self._base + path,
            {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
            None if body is None else json.dumps(body).encode(),
            name=f"{method} {path.partition('?')[0]}",
            # The user data has the private half of a host key; a pod gets it in its environment.
            secrets=[self._key, str((body or {}).get("user_data", "")), json.dumps((body or {}).get("env", ""))],
        )
