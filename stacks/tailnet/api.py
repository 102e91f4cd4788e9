"""Calls of Tailscale's HTTP API where the provider does not fit: remove machines from the list, read the policy."""

import base64
import os
import urllib.parse
from collections.abc import Mapping
from typing import Any

from stacks.http_client import ApiError, json_object


class Api:
    """The API for one tailnet. Raises ApiError if the credentials are not accepted.

    credentials   api_key; or oauth_client_id with oauth_client_secret, identity_token or audience
    """

    def __init__(self, base_url: str, organization: str, credentials: Mapping[str, str]) -> None:
        self._base, self._organization = base_url, urllib.parse.quote(organization, safe="")
        self._secrets = [value for name, value in credentials.items() if name not in ("oauth_client_id", "audience")]
        self._header = self._authorization(credentials)

    def devices(self) -> list[dict[str, Any]]:
        """Return every machine and device of the tailnet."""
        devices = self._call("GET", f"/api/v2/tailnet/{self._organization}/devices").get("devices")
        if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
            raise ApiError("Tailscale's API gave no list of devices")
        return devices

    def policy(self) -> dict[str, Any]:
        """Return the tailnet's policy file."""
        return self._call("GET", f"/api/v2/tailnet/{self._organization}/acl", accept="application/json")

    def remove(self, device: str) -> None:
        """Remove a machine from the list, if it is there."""
        try:
            self._call("DELETE", f"/api/v2/device/{urllib.parse.quote(device, safe='')}")
        except ApiError as error:
            if error.status != 404:
                raise

    def _authorization(self, credentials: Mapping[str, str]) -> str:
        """Return the Authorization header."""
        if key := credentials.get("api_key"):
            return "Basic " + base64.b64encode(f"{key}:".encode()).decode()
        client = {"client_id": credentials["oauth_client_id"]}
        if secret := credentials.get("oauth_client_secret"):
            answer = self._call("POST", "/api/v2/oauth/token", form={**client, "client_secret": secret})
        else:
            token = credentials.get("identity_token") or _from_github(credentials["audience"])
            self._secrets.append(token)
            answer = self._call("POST", "/api/v2/oauth/token-exchange", form={**client, "jwt": token})
        if not isinstance(answer.get("access_token"), str):
            raise ApiError("Tailscale's API gave no access token for these credentials")
        self._secrets.append(answer["access_token"])
        return f"Bearer {answer['access_token']}"

    def _call(self, method: str, path: str, form: Mapping[str, str] | None = None, accept: str = "") -> dict[str, Any]:
        if form:
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
        else:
            headers = {"Authorization": self._header, **({"Accept": accept} if accept else {})}
        data = urllib.parse.urlencode(form).encode() if form else None
        name = f"{method} {path}"
        return json_object(method, self._base + path, headers, data, name=name, secrets=[*self._secrets])


def _from_github(audience: str) -> str:
    """Return the token of a workflow on GitHub. Raises ApiError elsewhere."""
    url, token = (os.environ.get(f"ACTIONS_ID_TOKEN_REQUEST_{name}") for name in ("URL", "TOKEN"))
    if not url or not token:
        raise ApiError("a federated identity's token is only available in a workflow on GitHub")
    url = f"{url}&audience={urllib.parse.quote(audience, safe='')}"
    headers = {"Authorization": f"Bearer {token}"}
    answer = json_object("GET", url, headers, name="GitHub's token", secrets=[token])
    return str(answer.get("value", ""))
