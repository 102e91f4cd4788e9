"""Tailscale's HTTP API as far as no resource of the provider has it: machines that are to go from the list.

Python's own library alone, so that `python3 -m stacks.tailnet.device` runs wherever the stack is destroyed from.
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

LIMIT_SECONDS = 60  # of one call, as the provider's client has it


class ApiError(Exception):
    """A call that was refused or not answered, in one sentence without a secret."""


class Api:
    """One tailnet.

    credentials   api_key; or oauth_client_id with oauth_client_secret, identity_token or audience. ApiError where they
                  do not open anything
    """

    def __init__(self, base_url: str, organization: str, credentials: Mapping[str, str]) -> None:
        self._base, self._organization = base_url, urllib.parse.quote(organization, safe="")
        self._header = self._opened(credentials)

    def devices(self) -> list[dict[str, Any]]:
        """Every machine and device of the tailnet."""
        found = self._call("GET", f"/api/v2/tailnet/{self._organization}/devices").get("devices")
        return [device for device in found if isinstance(device, dict)] if isinstance(found, list) else []

    def remove(self, device: str) -> None:
        """Take a machine from the list; one that is not there is as it should be."""
        self._call("DELETE", f"/api/v2/device/{urllib.parse.quote(device, safe='')}", gone=True)

    def _opened(self, credentials: Mapping[str, str]) -> str:
        """The header that opens the API."""
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
        self, method: str, path: str, form: Mapping[str, str] | None = None, gone: bool = False
    ) -> dict[str, Any]:
        data = urllib.parse.urlencode(form).encode() if form else None
        # The scheme was checked with the config, which may name a server of a test.
        request = urllib.request.Request(self._base + path, data, method=method)  # noqa: S310
        if not form:
            request.add_header("Authorization", self._header)
        return _answer(request, f"{method} {path}", gone)


def _from_github(audience: str) -> str:
    """The token of a workflow that runs on GitHub. ApiError elsewhere."""
    url, token = (os.environ.get(f"ACTIONS_ID_TOKEN_REQUEST_{what}") for what in ("URL", "TOKEN"))
    if not url or not token:
        raise ApiError("a federated identity's token can be asked for in a workflow on GitHub alone")
    request = urllib.request.Request(f"{url}&audience={urllib.parse.quote(audience, safe='')}")  # noqa: S310
    request.add_header("Authorization", f"Bearer {token}")
    return str(_answer(request, "GitHub's token").get("value", ""))


def _answer(request: urllib.request.Request, what: str, gone: bool = False) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:  # noqa: S310
            answer = json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        if gone and error.code == 404:
            return {}
        raise ApiError(f"{what}: {error.code} {_said(error.read())}".strip()) from None
    except (OSError, ValueError) as error:
        raise ApiError(f"{what}: no answer that could be read ({type(error).__name__})") from None
    return answer if isinstance(answer, dict) else {}


def _said(body: bytes) -> str:
    """The API's own words for a refusal."""
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("message", ""))[:200] if isinstance(answer, dict) else ""
