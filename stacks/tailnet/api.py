"""Calls of Tailscale's HTTP API where the provider does not fit: remove machines from the list, read the policy.

It uses only the standard library, so that `python3 -m stacks.tailnet.device` runs wherever you destroy the stack.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

LIMIT_SECONDS = 60  # of one call, as in the provider's client


class ApiError(Exception):
    """A rejected or unanswered call, as one sentence without a secret."""


class Api:
    """The API for one tailnet. Raises ApiError if the credentials are not accepted.

    credentials   api_key; or oauth_client_id with oauth_client_secret, identity_token or audience
    """

    def __init__(self, base_url: str, organization: str, credentials: Mapping[str, str]) -> None:
        self._base, self._organization = base_url, urllib.parse.quote(organization, safe="")
        self._header = self._authorization(credentials)

    def devices(self) -> list[dict[str, Any]]:
        """Return every machine and device of the tailnet."""
        devices = self._call("GET", f"/api/v2/tailnet/{self._organization}/devices").get("devices")
        return [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []

    def policy(self) -> dict[str, Any]:
        """Return the tailnet's policy file."""
        return self._call("GET", f"/api/v2/tailnet/{self._organization}/acl", accept="application/json")

    def remove(self, device: str) -> None:
        """Remove a machine from the list, if it is there."""
        self._call("DELETE", f"/api/v2/device/{urllib.parse.quote(device, safe='')}", may_be_missing=True)

    def _authorization(self, credentials: Mapping[str, str]) -> str:
        """Return the Authorization header."""
        if key := credentials.get("api_key"):
            return "Basic " + base64.b64encode(f"{key}:".encode()).decode()
        client = {"client_id": credentials["oauth_client_id"]}
        if secret := credentials.get("oauth_client_secret"):
            answer = self._call("POST", "/api/v2/oauth/token", form={**client, "client_secret": secret})
        else:
            token = credentials.get("identity_token") or _from_github(credentials["audience"])
            answer = self._call("POST", "/api/v2/oauth/token-exchange", form={**client, "jwt": token})
        if not isinstance(answer.get("access_token"), str):
            raise ApiError("Tailscale's API gave no access token for these credentials")
        return f"Bearer {answer['access_token']}"

    def _call(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None = None,
        may_be_missing: bool = False,
        accept: str = "",
    ) -> dict[str, Any]:
        data = urllib.parse.urlencode(form).encode() if form else None
        # The config check has verified the scheme; tests use a local server.
        request = urllib.request.Request(self._base + path, data, method=method)  # noqa: S310
        if not form:
            request.add_header("Authorization", self._header)
        if accept:
            request.add_header("Accept", accept)
        return _answer(request, f"{method} {path}", may_be_missing)


def _from_github(audience: str) -> str:
    """Return the token of a workflow on GitHub. Raises ApiError elsewhere."""
    url, token = (os.environ.get(f"ACTIONS_ID_TOKEN_REQUEST_{name}") for name in ("URL", "TOKEN"))
    if not url or not token:
        raise ApiError("a federated identity's token is only available in a workflow on GitHub")
    request = urllib.request.Request(f"{url}&audience={urllib.parse.quote(audience, safe='')}")  # noqa: S310
    request.add_header("Authorization", f"Bearer {token}")
    return str(_answer(request, "GitHub's token").get("value", ""))


def _answer(request: urllib.request.Request, call: str, may_be_missing: bool = False) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:  # noqa: S310
            answer = json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        if may_be_missing and error.code == 404:
            return {}
        raise ApiError(f"{call}: {error.code} {_message(error.read())}".strip()) from None
    except (OSError, ValueError) as error:
        raise ApiError(f"{call}: no readable answer ({type(error).__name__})") from None
    return answer if isinstance(answer, dict) else {}


def _message(body: bytes) -> str:
    """Return the API's message about a rejected call."""
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("message", ""))[:200] if isinstance(answer, dict) else ""
