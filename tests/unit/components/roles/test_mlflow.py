"""Role mlflow: its section, its list of packages, accounts in MLflow's database, and what the stack puts out."""

import re
from pathlib import Path

from cli.mlflow_lock import fits
from components.roles.jobs.mlflow.accounts import update_accounts
from components.roles.jobs.mlflow.served_requests import is_plain, is_served
from components.roles.jobs.mlflow.start import is_inside, is_own, options
from components.roles.role import folder_of
from tests.unit.configs import LAB, refusal
from tests.unit.recorded import Build, tailnet_address

SECRET = "made-and-nobody-may-see"
LOCK = folder_of("mlflow") / "lock"


class FakeStore:
    """A fake of MLflow's store of accounts."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, bool]] = {}
        self.changed: list[str] = []

    def has_user(self, username: str) -> bool:
        return username in self.known

    def authenticate_user(self, username: str, password: str) -> bool:
        return self.known[username][0] == password

    def create_user(self, username: str, password: str, is_admin: bool) -> None:
        assert username not in self.known
        self.known[username] = (password, is_admin)
        self.changed.append(username)

    def update_user(self, username: str, password: str, is_admin: bool) -> None:
        del self.known[username]
        self.create_user(username, password, is_admin)


def test_an_update_sets_new_passwords_and_a_random_one_for_removed_users(tmp_path: Path) -> None:
    store, made = FakeStore(), tmp_path / "accounts"
    for _ in range(2):
        update_accounts(store, [("admin", "a" * 12), ("ada", "b" * 12)], made)
        assert store.known == {"admin": ("a" * 12, True), "ada": ("b" * 12, False)}
        assert store.changed == ["admin", "ada"]
    store.known["guest"] = ("made by the administrator", False)
    update_accounts(store, [("admin", "c" * 12)], made)
    assert store.known["admin"] == ("c" * 12, True)
    assert re.fullmatch("[0-9a-f]{64}", store.known["ada"][0])
    assert store.known["guest"] == ("made by the administrator", False)
    # Who comes back has a password again, and all that was logged.
    update_accounts(store, [("admin", "c" * 12), ("ada", "d" * 12)], made)
    assert store.known["ada"] == ("d" * 12, False)


def test_the_server_answers_to_its_own_names_alone_and_no_secret_is_in_its_words() -> None:
    words = options("/var/lib/x/mlflow.db", "/shared/mlflow", {"ADDRESS": "100.64.0.1", "PORT": "5000", "NAME": "head"})
    assert words[words.index("--app-name") + 1] == "basic-auth"
    assert words[words.index("--backend-store-uri") + 1] == "sqlite:////var/lib/x/mlflow.db"
    hosts = words[words.index("--allowed-hosts") + 1]
    assert hosts == "100.64.0.1,100.64.0.1:*,head,head:*,head.*,head.*:*,localhost,localhost:*"
    assert not [word for word in words if "password" in word or "secret" in word]


def test_mlflow_serves_only_requests_with_a_listed_method_and_path() -> None:
    for method, path, is_there in (
        ("GET", "/", True),
        ("GET", "/health", True),
        ("HEAD", "/health", False),
        ("GET", "/healthy", False),
        ("POST", "/api/2.0/mlflow/runs/log-batch", True),
        ("POST", "/ajax-api/2.0/mlflow/runs/log-batch", True),
        ("GET", "/api/2.0/mlflow/runs/log-batch", False),
        ("POST", "/api/2.0/mlflow/runs/log-batch/", False),
        ("POST", "/api/2.0/mlflow/runs/log-batch\n", False),
        ("POST", "x/api/2.0/mlflow/runs/log-batch", False),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/1/a b/100%.pt", True),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/1/../2", False),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/1/%2e%2e/2", False),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts//etc", False),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/", False),
        ("DELETE", "/api/2.0/mlflow-artifacts/artifacts", False),
        ("PATCH", "/api/2.0/mlflow/logged-models/m-1/tags", True),
        ("PATCH", "/api/2.0/mlflow/logged-models/m-1/x/tags", False),
        ("GET", "/ajax-api/3.0/mlflow/assistant/config", False),
        ("POST", "/api/2.0/mlflow/webhooks", False),
        ("CONNECT", "/", False),
    ):
        assert is_served(method, path) is is_there, (method, path)


def test_a_path_that_two_readers_may_take_for_two_things_is_none() -> None:
    for path in ("", "x", "//", "/a//b", "/a/", "/a/.", "/%2E%2e/a", "/a%252fb/..", "/a\\b", "/a%5cb", "/%00"):
        assert not is_plain(path), path


def test_mlflow_accepts_only_locations_in_its_own_storage(tmp_path: Path) -> None:
    assert is_own("mlflow-artifacts:/1/a model/x")
    assert is_own("models:/m-1", "runs:", "models:")
    for other in (
        "models:/m-1",
        "mlflow-artifacts://host/x",
        "mlflow-artifacts:",
        "mlflow-artifacts:/a?b",
        "/etc",
        "file:/x",
    ):
        assert not is_own(other), other
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    assert is_inside(str(folder / "a" / "b"), str(folder))
    for outside in (folder / "out" / "x", folder / ".." / "files2", tmp_path / "files2", Path("/etc")):
        assert not is_inside(str(outside), str(folder)), outside


def test_the_config_rejects_invalid_mlflow_settings() -> None:
    for section, words in (
        ({"port": 6817}, "another daemon"),
        ({"port": 80}, "1024 to 65535"),
        ({"index": "http://mirror.example.org/simple"}, "https:// address"),
        ({"index": "https://me:word@mirror.example.org/simple"}, "contains a log-in"),
        ({"index": "wheels"}, "absolute path"),
        ({"index": "/srv/../root"}, "absolute path"),
        ({"index": "/srv/$(reboot)"}, "absolute path"),
    ):
        said = refusal({"mlflow": section})
        assert words in said, section
        assert "me:word" not in said, section


def test_a_port_of_monitoring_is_named() -> None:
    for name, daemon in {"port": "Prometheus", "exporter_port": "the node exporter"}.items():
        said = refusal({"monitoring": {name: 5001}, "mlflow": {"port": 5001}})
        assert f"tailrack:mlflow.port: 5001 is also the port of {daemon}" in said


def test_every_package_is_pinned_by_digest_and_none_that_is_left_out_is_there() -> None:
    blocks = re.split(r"\n(?=\S)", (LOCK / "requirements.txt").read_text().strip())[1:]
    pin = re.compile(r"[a-z0-9-]+==\S+( ; .+)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\\n)?)+")
    assert [block for block in blocks if not pin.fullmatch(block)] == []
    left_out = {line for line in (LOCK / "excludes.txt").read_text().splitlines() if not line.startswith("#")}
    assert not left_out & {block.partition("==")[0] for block in blocks}
    wanted = re.search(r"^mlflow\[auth\]==(\S+)$", (LOCK / "requirements.in").read_text(), re.MULTILINE)
    assert wanted is not None
    assert [block.splitlines()[0] for block in blocks if block.startswith("mlflow==")] == [f"mlflow=={wanted[1]} \\"]


def test_a_wheel_fits_the_pythons_and_processors_that_it_names() -> None:
    for wheel, python, processor, does in (
        ("a_b-1.0-py3-none-any.whl", "310", "aarch64", True),
        ("a-1.0-py2.py3-none-any.whl", "313", "x86_64", True),
        ("a-1.0-py2-none-any.whl", "313", "x86_64", False),
        ("a-1.0-cp313-cp313-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", "313", "x86_64", True),
        ("a-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", "313", "aarch64", False),
        ("a-1.0-cp313-cp313t-manylinux_2_17_x86_64.whl", "313", "x86_64", False),
        ("a-1.0-cp313-cp313-manylinux_2_39_x86_64.whl", "313", "x86_64", False),
        ("a-1.0-cp39-abi3-manylinux_2_28_aarch64.whl", "312", "aarch64", True),
        ("a-1.0-cp311-abi3-manylinux_2_28_aarch64.whl", "310", "aarch64", False),
        ("a-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", "312", "x86_64", False),
        ("a-1.0-cp312-cp312-macosx_11_0_arm64.whl", "312", "aarch64", False),
    ):
        assert fits(wheel, python, processor) is does, (wheel, python, processor)


def test_the_password_of_the_administrator_is_a_secret_output_and_travels_with_the_services_alone(build: Build) -> None:
    stack = build({**LAB, "mlflow": {}}, answers={"mlflow-password": SECRET})
    assert "stdin" in stack["head-services"].secret_paths
    commands = [one for one in stack.resources if SECRET in str(one.inputs.get("stdin"))]
    assert [one.name for one in commands] == ["head-services"]
    assert not [one.name for one in stack.resources if SECRET in one.in_plain_state]
    assert stack.outputs["mlflow_admin_password"] == SECRET
    assert stack.outputs["mlflow_url"] == f"http://{tailnet_address('head')}:5000"
    assert "/etc/tailrack/mlflow-uri" in str(stack.plan("b1-node")["calls"])
    assert "mlflow-password" not in build(LAB).names
