"""What MLflow's real server does for a user of the head node, who connects to it from a loopback address."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from components.roles.jobs.mlflow.served_requests import LISTED
from tests.lab.mlflow_server import Server, running

# The roots of this machine, which no user of a server should see by it.
PASSWD = b"root:x:0:0"
API, AJAX = "/api/2.0/mlflow", "/ajax-api/2.0/mlflow"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("mlflow")) as one:
        yield one


def experiment_of(server: Server, name: str, user: str = "ada") -> str:
    made = server.ask("POST", f"{API}/experiments/create", {"name": name}, user=user)
    assert made.status == 200, made
    return str(made.json["experiment_id"])


ASSISTANT = "/ajax-api/3.0/mlflow/assistant"
NOT_SERVED = [
    ("GET", f"{ASSISTANT}/config"),
    ("GET", f"{ASSISTANT}/providers"),
    ("PUT", f"{ASSISTANT}/config"),
    ("POST", f"{ASSISTANT}/message"),
    ("POST", f"{ASSISTANT}/skills/install"),
    ("PATCH", f"{ASSISTANT}/sessions/1"),
    ("HEAD", f"{ASSISTANT}/config"),
    ("OPTIONS", f"{ASSISTANT}/config"),
    # One that a reader of another kind may take for the same.
    ("GET", f"/{ASSISTANT}/config"),
    ("GET", f"{ASSISTANT}//config"),
    ("GET", f"{ASSISTANT}/config/"),
    ("GET", f"{ASSISTANT}/./config"),
    ("GET", "/ajax-api/3.0/mlflow/%61ssistant/config"),
    ("GET", "/ajax-api/3.0/mlflow/%2561ssistant/config"),
    ("GET", "/ajax-api/3.0/mlflow%2fassistant%2fconfig"),
    ("GET", f"/static-files/..{ASSISTANT}/config"),
    ("GET", f"/static-files/%2e%2e{ASSISTANT}/config"),
    ("GET", f"{AJAX}/../../3.0/mlflow/assistant/config"),
    ("GET", f"/health{ASSISTANT}/config"),
    ("GET", "/AJAX-API/3.0/mlflow/assistant/config"),
    # What asks other machines, or runs something here.
    ("POST", f"{API}/webhooks"),
    ("GET", f"{API}/webhooks"),
    ("POST", f"{AJAX}/gateway-proxy"),
    ("GET", f"{AJAX}/gateway-proxy"),
    ("POST", "/gateway/any/mlflow/invocations"),
    ("POST", "/api/3.0/mlflow/gateway/endpoints/create"),
    ("GET", "/ajax-api/3.0/mlflow/gateway/supported-models"),
    ("POST", "/ajax-api/3.0/jobs/"),
    ("POST", "/ajax-api/3.0/mlflow/scorer/invoke"),
    ("POST", "/api/3.0/mlflow/scorers/register"),
    ("POST", "/api/3.0/mlflow/prompt-optimization/jobs"),
    ("POST", "/ajax-api/3.0/mlflow/genai/evaluate/invoke"),
    ("POST", "/ajax-api/3.0/mlflow/demo/generate"),
    ("GET", "/ajax-api/3.0/mlflow/ui-telemetry"),
    ("POST", f"{AJAX}/runs/create-promptlab-run"),
    ("POST", f"{AJAX}/upload-artifact"),
    ("POST", "/v1/traces"),
    ("POST", "/graphql"),
    ("POST", "/api/3.0/mlflow/workspaces"),
    ("GET", "/signup"),
    # Another method than what is served there.
    ("PUT", f"{API}/experiments/create"),
    ("GET", f"{API}/experiments/create"),
    ("OPTIONS", f"{API}/experiments/create"),
    ("HEAD", f"{API}/experiments/search"),
    ("HEAD", "/get-artifact"),
    ("TRACE", "/"),
    ("GET", "*"),
]


@pytest.mark.parametrize("user", [None, "ada", "admin"])
@pytest.mark.parametrize(("method", "target"), NOT_SERVED)
def test_head_node_users_reach_only_listed_requests(server: Server, method: str, target: str, user: str | None) -> None:
    answer = server.ask(method, target, {} if method in {"POST", "PUT", "PATCH"} else None, user=user)
    # 400: no request that the server can read.
    assert answer.status in {400, 404}, answer
    assert b"provider" not in answer.body


def test_a_header_that_names_another_client_changes_nothing(server: Server) -> None:
    for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "X-HTTP-Method-Override"):
        answer = server.ask("GET", f"{ASSISTANT}/config", **{name: "127.0.0.1"})
        assert answer.status == 404, answer


LOCATIONS = [
    "file:///etc",
    "/etc",
    "etc",
    "FILE:///etc",
    "file://localhost/etc",
    "http://127.0.0.1:9/",
    "https://example.org/api/2.0/mlflow-artifacts/artifacts/x",
    "s3://bucket/x",
    "ftp://127.0.0.1/x",
    "mlflow-artifacts://127.0.0.1:9/x",
    "mlflow-artifacts:///x",
    "mlflow-artifacts:/../data",
    "mlflow-artifacts:/x/../../data",
    "mlflow-artifacts:/%2e%2e/data",
    "mlflow-artifacts:/%252e%252e/data",
    "mlflow-artifacts:/x//y",
    "mlflow-artifacts:/x?y",
    "mlflow-artifacts:x",
    "dbfs:/x",
    "runs:/x/y",
    "sqlite:////etc/passwd",
]


@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("field", ["artifact_location", "artifactLocation"])
def test_mlflow_rejects_an_experiment_with_files_elsewhere_by_name(server: Server, location: str, field: str) -> None:
    for user in ("ada", "admin"):
        body = {"name": f"elsewhere {user} {location} {field}", field: location}
        answer = server.ask("POST", f"{API}/experiments/create", body, user=user)
        assert answer.status == 400, answer
        assert "mlflow-artifacts:/" in answer.json["message"]


def test_an_experiment_may_name_a_path_of_the_servers_own_storage(server: Server) -> None:
    body = {"name": "named", "artifact_location": "mlflow-artifacts:/of my own/x"}
    assert server.ask("POST", f"{API}/experiments/create", body).status == 200


@pytest.mark.parametrize("location", LOCATIONS[:-2])
def test_a_version_of_a_model_has_no_source_elsewhere(server: Server, location: str) -> None:
    server.ask("POST", f"{API}/registered-models/create", {"name": "model"})
    for user in ("ada", "admin"):
        body = {"name": "model", "source": location}
        assert server.ask("POST", f"{API}/model-versions/create", body, user=user).status == 400


@pytest.mark.parametrize("location", ["file:///etc", "http://127.0.0.1:9/x", "mlflow-artifacts:/../data"])
def test_a_trace_has_no_location_elsewhere(server: Server, location: str) -> None:
    number = experiment_of(server, f"traced {location}")
    trace = {
        "trace_id": f"tr-{abs(hash(location)):032x}",
        "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": number}},
        "request_time": "2026-01-01T00:00:00Z",
        "state": "OK",
    }
    made = server.ask("POST", "/api/3.0/mlflow/traces", {"trace": {"trace_info": trace}})
    assert made.status == 200, made
    tag = {"key": "mlflow.artifactLocation", "value": location}
    for version in ("2.0", "3.0"):
        target = f"/api/{version}/mlflow/traces/{trace['trace_id']}/tags"
        assert server.ask("PATCH", target, tag, user="admin").status == 400


TRAVERSALS = [
    "../data/mlflow.db",
    "..%2f..%2fdata%2fmlflow.db",
    "%2e%2e/%2e%2e/data/mlflow.db",
    "%252e%252e/%252e%252e/data/mlflow.db",
    "x/../../../data/mlflow.db",
    "//etc/passwd",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "..%5c..%5cdata%5cmlflow.db",
    "file:%2f%2f%2fetc%2fpasswd",
    "x%00y",
]


@pytest.mark.parametrize("name", TRAVERSALS)
def test_no_name_of_a_file_leads_out_of_the_folder(server: Server, name: str) -> None:
    before = server.data.joinpath("mlflow.db").stat().st_ino
    run = server.ask("POST", f"{API}/runs/create", {"experiment_id": experiment_of(server, f"named {name}")})
    run_id = run.json["run"]["info"]["run_id"]
    for user in ("ada", "admin"):
        for method in ("PUT", "GET", "DELETE"):
            body = b"overwritten" if method == "PUT" else None
            answer = server.ask(method, f"/api/2.0/mlflow-artifacts/artifacts/{name}", body, user=user)
            assert 400 <= answer.status < 500, answer
        for query in (
            f"/get-artifact?run_id={run_id}&path={name}",
            f"{API}/artifacts/list?run_id={run_id}&path={name}",
            f"/api/2.0/mlflow-artifacts/artifacts?path={name}",
        ):
            answer = server.ask("GET", query, user=user)
            assert PASSWD not in answer.body
            assert b"SQLite format" not in answer.body
            assert answer.status >= 400 or not answer.json.get("files"), answer
    assert server.data.joinpath("mlflow.db").stat().st_ino == before
    assert server.data.joinpath("mlflow.db").read_bytes().startswith(b"SQLite format 3")


def test_a_location_that_an_older_database_has_is_not_opened(server: Server, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the machine")
    number = experiment_of(server, "older")
    run_id = server.ask("POST", f"{API}/runs/create", {"experiment_id": number}).json["run"]["info"]["run_id"]
    with closing(sqlite3.connect(server.data / "mlflow.db", timeout=60)) as database, database:
        database.execute("update runs set artifact_uri = ? where run_uuid = ?", (str(tmp_path), run_id))
        database.execute(
            "update experiments set artifact_location = ? where experiment_id = ?", (str(tmp_path), number)
        )
    answer = server.ask("GET", f"/get-artifact?run_id={run_id}&path=secret")
    assert answer.status == 400, answer
    assert b"of the machine" not in answer.body
    assert server.ask("GET", f"{API}/artifacts/list?run_id={run_id}").status == 400
    # And nothing more is put there.
    assert server.ask("POST", f"{API}/runs/create", {"experiment_id": number}).status == 400


def test_a_link_in_the_folder_is_not_followed_out_of_it(server: Server) -> None:
    number = experiment_of(server, "linked")
    folder = server.artifacts / "files" / number
    folder.mkdir(parents=True)
    (folder / "out").symlink_to(server.data)
    for method, body in (("GET", None), ("PUT", b"x"), ("DELETE", None)):
        target = f"/api/2.0/mlflow-artifacts/artifacts/{number}/out/mlflow.db"
        assert server.ask(method, target, body, user="admin").status >= 400
    assert (server.data / "mlflow.db").exists()


def test_without_a_login_only_the_health_and_the_pages_frame_are_shown(server: Server) -> None:
    for target in ("/", "/version", f"{API}/experiments/search?max_results=5", "/api/2.0/mlflow-artifacts/artifacts"):
        assert server.ask("GET", target, user=None).status == 401, target
    assert server.ask("GET", "/health", user=None).status == 200
    assert server.ask("GET", "/static-files/../../../../etc/passwd", user=None).status == 404


ROUTES = """
import json, os
os.environ["MLFLOW_FLASK_SERVER_SECRET_KEY"] = "of a test"
import mlflow.server.auth
from mlflow.server import app
mlflow.server.auth._init_store_for_app = lambda: None
mlflow.server.auth.create_app(app)
print(json.dumps([[rule.rule, sorted(rule.methods)] for rule in app.url_map.iter_rules()]))
"""


def test_the_list_has_no_request_that_mlflow_itself_does_not_know(server: Server) -> None:
    # A name that is written wrong here would be served nowhere.
    known = {(method, re.sub("<[^>]*>", "*", rule)) for rule, methods in server.client(ROUTES) for method in methods}
    # Pages in a browser have some that programs have not.
    names = "metrics/get-history-bulk|experiments/search-datasets|logged-models/.*/artifacts/files|get-trace-artifact"
    pages_alone = re.compile(rf"/api/[23]\.0/mlflow/({names})$")
    lacking = [(method, path.replace("**", "*")) for method, path in LISTED if not pages_alone.match(path)]
    assert len(lacking) > 200
    assert [one for one in lacking if one not in known] == []


CLIENT = """
import json, pathlib, mlflow
from mlflow import MlflowClient
client = MlflowClient()
mlflow.set_experiment("of the client")
with mlflow.start_run() as run:
    mlflow.log_param("rate", 0.1)
    mlflow.log_metrics({"loss": 0.5})
    mlflow.set_tag("kind", "first")
    mlflow.log_text("the weights", "checkpoints/step 1.pt")
    mlflow.log_dict({"a": 1}, "b/c.json")
run_id = run.info.run_id
client.create_registered_model("of the client")
version = client.create_model_version("of the client", run.info.artifact_uri + "/checkpoints", run_id)
prompt = mlflow.genai.register_prompt("a-prompt", "Say {{it}}")
print(json.dumps([
    client.get_run(run_id).data.metrics, client.get_run(run_id).data.params["rate"],
    [file.path for file in client.list_artifacts(run_id)],
    [file.path for file in client.list_artifacts(run_id, "checkpoints")],
    mlflow.artifacts.load_text(run.info.artifact_uri + "/checkpoints/step 1.pt"),
    pathlib.Path(client.download_artifacts(run_id, "b/c.json")).read_text().split(),
    prompt.version, version.version, len(client.search_runs([run.info.experiment_id])),
]))
"""


def test_mlflows_own_client_logs_uploads_registers_and_reads_as_before(server: Server) -> None:
    done = server.client(CLIENT)
    assert done[0] == {"loss": 0.5}
    assert done[1:5] == ["0.1", ["b", "checkpoints"], ["checkpoints/step 1.pt"], "the weights"]
    assert json.loads(" ".join(done[5])) == {"a": 1}
    assert [int(number) for number in done[6:]] == [1, 1, 1]
