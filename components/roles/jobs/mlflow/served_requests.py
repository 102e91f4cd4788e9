"""The requests that the MLflow server answers: tracking, the model registry and MLflow's accounts.

MLflow offers more: an assistant that runs programs for any client on a loopback address, webhooks and a gateway that
connect to other machines, jobs. A list of refused requests would miss the additions of the next release, so this module
lists the served requests, and the server answers 404 to all others.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]

# A method and its paths: `*` stands for one segment of a path, `**` for the rest.
PAGES = """
GET     / /health /version /static-files/** /get-artifact /model-versions/get-artifact
"""
# Paths below /api, and below /ajax-api for MLflow's own web pages.
API = """
GET     /2.0/mlflow/experiments/{get,get-by-name,search}
POST    /2.0/mlflow/experiments/{create,search,delete,restore,update,set-experiment-tag,delete-experiment-tag}
POST    /2.0/mlflow/experiments/search-datasets
GET     /2.0/mlflow/runs/get
POST    /2.0/mlflow/runs/{create,update,delete,restore,search,set-tag,delete-tag}
POST    /2.0/mlflow/runs/{log-metric,log-parameter,log-batch,log-model,log-inputs,outputs}
GET     /2.0/mlflow/metrics/{get-history,get-history-bulk,get-history-bulk-interval}
GET     /2.0/mlflow/artifacts/list
GET     /2.0/mlflow-artifacts/artifacts
GET     /2.0/mlflow-artifacts/artifacts/**
PUT     /2.0/mlflow-artifacts/artifacts/**
DELETE  /2.0/mlflow-artifacts/artifacts/**
POST    /2.0/mlflow/logged-models /2.0/mlflow/logged-models/search /2.0/mlflow/logged-models/*/params
GET     /2.0/mlflow/logged-models/* /2.0/mlflow/logged-models/*/artifacts/{directories,files}
PATCH   /2.0/mlflow/logged-models/* /2.0/mlflow/logged-models/*/tags
DELETE  /2.0/mlflow/logged-models/* /2.0/mlflow/logged-models/*/tags/*
GET     /2.0/mlflow/registered-models/{get,search,get-latest-versions,alias}
POST    /2.0/mlflow/registered-models/{create,rename,get-latest-versions,set-tag,alias}
PATCH   /2.0/mlflow/registered-models/update
DELETE  /2.0/mlflow/registered-models/{delete,delete-tag,alias}
GET     /2.0/mlflow/model-versions/{get,search,get-download-uri}
POST    /2.0/mlflow/model-versions/{create,transition-stage,set-tag}
PATCH   /2.0/mlflow/model-versions/update
DELETE  /2.0/mlflow/model-versions/{delete,delete-tag}
GET     /3.0/mlflow/traces/{get,batchGet} /3.0/mlflow/traces/* /3.0/mlflow/traces/*/assessments/*
POST    /3.0/mlflow/traces /3.0/mlflow/traces/{search,batchGetInfos,delete-traces,metrics}
POST    /3.0/mlflow/traces/calculate-filter-correlation /3.0/mlflow/traces/*/assessments
POST    /2.0/mlflow/traces/{link-to-run,link-prompts,delete-traces}
PATCH   /2.0/mlflow/traces/*/tags /3.0/mlflow/traces/*/tags /3.0/mlflow/traces/*/assessments/*
DELETE  /2.0/mlflow/traces/*/tags /3.0/mlflow/traces/*/tags /3.0/mlflow/traces/*/assessments/*
GET     /2.0/mlflow/get-trace-artifact /3.0/mlflow/get-trace-artifact
GET     /3.0/mlflow/datasets/search /3.0/mlflow/datasets/* /3.0/mlflow/datasets/*/{experiment-ids,records}
POST    /3.0/mlflow/datasets/{create,search} /3.0/mlflow/datasets/*/records
POST    /3.0/mlflow/datasets/*/{add-experiments,remove-experiments}
PATCH   /3.0/mlflow/datasets/*/tags
DELETE  /3.0/mlflow/datasets/* /3.0/mlflow/datasets/*/tags/* /3.0/mlflow/datasets/*/records
GET     /3.0/mlflow/server-info
GET     /2.0/mlflow/users/{get,list,current} /3.0/mlflow/users/current/permissions
GET     /3.0/mlflow/users/permissions/{list,get} /3.0/mlflow/users/roles/list
POST    /2.0/mlflow/users/create /3.0/mlflow/users/permissions/{grant,revoke}
PATCH   /2.0/mlflow/users/{update-password,update-admin}
DELETE  /2.0/mlflow/users/delete
GET     /3.0/mlflow/roles/{get,list} /3.0/mlflow/roles/permissions/list /3.0/mlflow/roles/users/list
POST    /3.0/mlflow/roles/{create,assign} /3.0/mlflow/roles/permissions/add
PATCH   /3.0/mlflow/roles/update /3.0/mlflow/roles/permissions/update
DELETE  /3.0/mlflow/roles/{delete,unassign} /3.0/mlflow/roles/permissions/remove
"""


def _templates(table: str, *prefixes: str) -> Iterator[tuple[str, str]]:
    for line in table.split("\n"):
        method, *paths = line.split() or [""]
        for path in paths:
            head, _, rest = path.partition("{")
            names, _, tail = rest.partition("}")
            for name in names.split(","):
                for prefix in prefixes:
                    yield method, f"{prefix}{head}{name}{tail}"


def _pattern(templates: list[str]) -> re.Pattern[str]:
    parts = {"**": ".+", "*": "[^/]+"}
    patterns = ("".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*+)", path)) for path in templates)
    return re.compile("|".join(patterns))


LISTED = [*_templates(PAGES, ""), *_templates(API, "/api", "/ajax-api")]
_SERVED = {name: _pattern([path for method, path in LISTED if method == name]) for name in dict(LISTED)}


def is_served(method: str, path: str) -> bool:
    """Return whether a request is in the list. `path` has its escapes decoded once, as MLflow receives it."""
    pattern = _SERVED.get(method)
    return pattern is not None and is_plain(path) and pattern.fullmatch(path) is not None


def is_plain(path: str) -> bool:
    """Return whether a path means the same however often a program decodes it."""
    while (decoded := unquote(path)) != path:
        path = decoded
    steps = path.split("/")[1:]
    return (
        path.startswith("/")
        and (path == "/" or not {"", ".", ".."} & set(steps))
        and not re.search(r"[\x00-\x1f\x7f\\]", path)
    )


def only_served(app: App) -> App:
    """Wrap an application so that it gets only the requests in the list; answer 404 to all others."""

    async def answer(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and is_served(scope["method"], scope["path"])):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body", "body": b"This server does not answer that request.\n"})
        else:
            await send({"type": "websocket.close", "code": 1008})

    return answer
