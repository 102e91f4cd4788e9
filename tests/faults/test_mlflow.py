"""MLflow on the head node: its real server, of the wheels that the role pins, and its real client in jobs of two nodes.

The tests share one cluster of the head node and a1, and run in the order of this file.
"""

import json

import pytest

from tests.lab import experiments
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.lab.experiments import CLIENT, PROGRAM, RUNS, STEPS, asked, bring_job, bring_wheels, restart, url
from tests.lab.leaks import LOOKS

Cluster = ClusterUnderTest


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One site, up without MLflow first: the folder of wheels is put on the head node by its owner."""
    made = make_cluster("flow", one_site=True)
    made.config["tailrack:users"].append({"name": "bob", "uid": 6002})
    made.up_ok()
    # As a user would find it: pip reaches nothing from here, and that takes neither nodes nor jobs along.
    made.config["tailrack:mlflow"] = {"index": "https://index.invalid/simple"}
    said = made.up()
    assert [failure.message for failure in said.failures if "MLflow cannot be installed here: " in failure.message], (
        said
    )
    assert len(said.failures) == 1
    # No job is sent to a server that is not there.
    assert "MLFLOW" not in made.run_as("ada", "head", "srun -w a1 env")
    assert made.run_as("ada", "head", "srun -w a1 hostname").split() == ["a1"]
    bring_wheels(made)
    made.config["tailrack:mlflow"] = {"index": experiments.WHEELS}
    made.up_ok()
    return made


LIB = "/usr/local/lib/tailrack"
DEBIAN = "Debian GNU/Linux 13 (trixie)"
LOGGED = {node: [STEPS, 1234.5, "FINISHED", [f"checkpoints/step-{STEPS}.pt"], DEBIAN] for node in ("head", "a1")}


def test_mlflow_keeps_the_data_of_jobs_on_two_nodes_after_a_restart(cluster: Cluster) -> None:
    told = cluster.run_as("ada", "head", "srun -w a1 env; srun -w a1 env | wc -l").splitlines()
    assert f"MLFLOW_TRACKING_URI={url(cluster)}" in told
    assert "MLFLOW_EXPERIMENT_NAME=ada" in told
    experiments.bring_client(cluster, "a1")
    bring_job(cluster)
    cluster.run_as("ada", "head", f"srun -N2 -w head,a1 {CLIENT} -W ignore log.py", 300)
    assert asked(cluster, "ada", RUNS) == LOGGED
    restart(cluster, "a1")
    # Others see what ada has logged, and change nothing of it.
    assert asked(cluster, "bob", RUNS) == LOGGED
    change = """
try:
    client.create_run(client.get_experiment_by_name("ada").experiment_id)
    print(json.dumps("changed"))
except Exception as error:
    print(json.dumps(str(error)))
"""
    assert "403" in asked(cluster, "bob", change)


def test_nothing_is_answered_without_a_log_in_and_each_password_is_its_users_alone(cluster: Cluster) -> None:
    def code(path: str, more: str = "") -> str:
        return cluster.run("a1", f"curl -s -o /dev/null -w '%{{http_code}}' {more} {url(cluster)}{path}")

    search = "/api/2.0/mlflow/experiments/search?max_results=5"
    for path in ("/", search, "/api/2.0/mlflow-artifacts/artifacts"):
        assert code(path) == "401", path
    assert code("/graphql") == "404"
    assert code(search, "-u ada:not-the-password") == "401"
    assert code(search, "-u admin:password1234") == "401"
    assert code(search, "-H 'Host: elsewhere.example.org'") == "403"
    assert cluster.run("head", "stat -c '%U %a' /shared/home/ada/.mlflow/credentials").split() == ["ada", "600"]
    for path in ("/shared/home/ada/.mlflow/credentials", "/shared/mlflow/files"):
        assert cluster.attempt("a1", f"su bob -c 'cat {path} || ls {path}'").returncode != 0, path
    listening = cluster.run("head", "ss -Hltn sport = :5000").split()
    assert listening[3] == url(cluster).removeprefix("http://")


def test_a_user_of_the_head_node_gets_nothing_of_the_assistant_by_any_address(cluster: Cluster) -> None:
    port = url(cluster).rpartition(":")[2]
    own = url(cluster).removeprefix("http://").partition(":")[0]

    def answered(words: str, path: str = "/ajax-api/3.0/mlflow/assistant/config") -> tuple[str, str]:
        curl = f"curl -s -m 5 -g -o /dev/null -w '%{{http_code}} %{{exitcode}}' {words}{path}"
        code, status = cluster.attempt("head", f'su ada -c "{curl}"').stdout.split()
        return code, status

    assert answered(url(cluster)) == ("404", "0")
    assert answered(url(cluster), "/health") == ("200", "0")
    for other in ("127.0.0.1", "[::1]", "localhost"):
        assert answered(f"http://{other}:{port}")[0] == "000", other
    # Its own address is reached from a loopback one by who asks for that: 28 is curl's end of its time.
    for source in ("127.0.0.1", "127.9.9.9"):
        assert answered(f"--interface {source} {url(cluster)}", "/health") == ("000", "28"), source
    # What else has a port of the cluster's there is closed to it as well.
    assert answered(f"--interface 127.0.0.1 http://{own}:6817")[1] == "28"


# What a program in the server's place tries, as JSON: by name, what came of it.
PROBE = """
import json, os, socket, subprocess, sys
KEPT = ("NoNewPrivs", "Seccomp:", "CapBnd")
def tried(what):
    try:
        what()
        return "done"
    except BaseException as error:
        return type(error).__name__
def connects(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(5)
        one.connect(address)
def uploaded():
    path = "/run/tailrack-mlflow/uploaded"
    with open(path, "w") as file:
        file.write("#!/bin/true\\n")
    os.chmod(path, 0o755)
    try:
        subprocess.run([path], check=True)
    finally:
        os.unlink(path)
def writes(path):
    return lambda: open(path, "w").close()
print(json.dumps({
    "shell": tried(lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True)),
    "loader": tried(lambda: subprocess.run([os.path.realpath(sys.argv[1]), "/bin/true"], check=True)),
    "uploaded": tried(uploaded),
    "python": tried(lambda: subprocess.run([sys.executable, "-I", "-c", ""], check=True)),
    "connect": tried(lambda: connects(socket.AF_INET, ("127.0.0.1", 22))),
    "daemon": tried(lambda: connects(socket.AF_UNIX, "/run/dbus/system_bus_socket")),
    "etc": tried(writes("/etc/probe")),
    "program": tried(writes(os.path.dirname(sys.executable) + "/probe")),
    "working": tried(writes("probe")),
    "tmp": tried(writes("/var/tmp/probe")),
    "database": tried(writes("/var/lib/tailrack-mlflow/probe")),
    "share": tried(lambda: os.listdir("/export/shared/home")),
    "home": tried(lambda: os.listdir("/root")),
    "others": [one for one in os.listdir("/proc") if one.isdigit() and os.stat("/proc/" + one).st_uid != os.getuid()],
    "privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith(KEPT)],
}))
"""


def test_a_program_in_the_servers_place_starts_nothing_and_reaches_nothing(cluster: Cluster) -> None:
    cluster.run("head", f"cat >{LIB}/probe.py <<'END'\n{PROBE}\nEND")
    # The server's own unit with another program: where a container ignores what the unit says, this fails.
    change = (
        f"s#^ExecStart=.*#ExecStart={PROGRAM}/bin/python -I {LIB}/probe.py /lib64/ld-linux-x86-64.so.2#;"
        "s/^Restart=.*/Type=oneshot\\nStandardOutput=truncate:\\/run\\/probe.json/; /^RuntimeDirectory/d; /^WantedBy/d"
    )
    unit = "/run/systemd/system/probe.service"
    cluster.run("head", f"sed '{change}' /etc/systemd/system/tailrack-mlflow.service >{unit}; systemctl daemon-reload")
    try:
        cluster.run("head", "systemctl start probe.service")
        found = json.loads(cluster.run("head", "tail -n 1 /run/probe.json"))
    finally:
        cluster.run("head", f"rm -f {unit} /run/probe.json {LIB}/probe.py; systemctl daemon-reload")
    refused = {"PermissionError", "OSError", "CalledProcessError"}
    kept = ("shell", "loader", "uploaded", "connect", "daemon", "etc", "program", "working", "share", "home")
    assert {name: found[name] for name in kept if found[name] not in refused} == {}
    # What it needs is there, and the two privileges that start others are not.
    assert (found["python"], found["database"], found["tmp"]) == ("done", "done", "done")
    assert found["others"] == []
    assert found["privileges"] == ["0000000000000000", "1", "2"]


def test_other_users_see_no_mlflow_password(cluster: Cluster) -> None:
    kept = cluster.run("head", "sed -n 's/.*_password = //p' /var/lib/tailrack/mlflow/users/*").split()
    assert len(kept) == 2
    shown = cluster.deployment().outputs()
    assert (shown["mlflow_admin_password"], shown["mlflow_url"]) == ("[secret]", url(cluster))
    for look in LOOKS:
        said = cluster.attempt("head", look).stdout
        assert len(said) > 100
        assert not [each for each in kept if each in said], look
    for path in cluster.state_files():
        assert not [each for each in kept if each.encode() in path.read_bytes()], path
    found = cluster.run("head", f"grep -rlsF {kept[0]} /etc /tmp /usr/local /var /run --exclude-dir=share || :").split()
    assert found == ["/var/lib/tailrack/mlflow/users/ada"]


def test_a_wrong_password_and_a_server_that_is_away_are_said_once_and_end_no_training(cluster: Cluster) -> None:
    def said(environment: str) -> str:
        command = f"rm -rf runs; srun -w head env {environment} {CLIENT} -W ignore log.py"
        return cluster.run_as("ada", "head", command, 240)

    wrong = said("MLFLOW_TRACKING_PASSWORD=not-the-password")
    assert wrong.count("train: goes on without MLflow at") == 1
    assert "log-in refused, see ~/.mlflow/credentials" in wrong
    away = said(f"MLFLOW_TRACKING_URI={url(cluster)[:-4]}5999")
    assert away.count("train: goes on without MLflow at") == 1


def test_a_backup_restores_mlflow_on_a_new_head_node(cluster: Cluster) -> None:
    cluster.run(
        "head",
        "install -d -m 0700 /var/lib/tailrack/dumps; /usr/local/lib/tailrack/backup.d/mlflow /var/lib/tailrack/dumps;"
        "systemctl stop tailrack-mlflow; rm -rf /var/lib/tailrack-mlflow",
        120,
    )
    cluster.config["tailrack:cluster"]["repair"] = {"head": "mlflow"}
    cluster.up_ok()
    assert not cluster.node("head").file("/var/lib/tailrack/dumps/mlflow.db").exists
    runs = asked(cluster, "ada", RUNS)
    assert {node: runs[node] for node in LOGGED} == LOGGED
    cluster.up_ok()
    assert cluster.touched() == set()


def test_a_port_that_another_program_has_is_named_and_switched_off_nothing_of_it_runs(cluster: Cluster) -> None:
    cluster.run("head", "systemd-run -q --unit=squatter python3 -m http.server 5123")
    eventually(lambda: "5123" in cluster.run("head", "ss -Hltn"), 30, "the port is taken")
    cluster.config["tailrack:mlflow"]["port"] = 5123
    said = "\n".join(failure.message for failure in cluster.up().failures)
    assert "port 5123 is in use on head (python3), so tailrack-mlflow cannot answer there" in said
    assert "tailrack:mlflow.port" in said
    cluster.run("head", "systemctl stop squatter")
    del cluster.config["tailrack:mlflow"]
    cluster.up_ok()
    assert cluster.attempt("head", "systemctl is-active tailrack-mlflow").stdout.strip() != "active"
    assert not cluster.node("head").file(PROGRAM).exists
    assert not cluster.node("a1").file("/etc/tailrack/mlflow-uri").exists
    assert cluster.node("head").file("/var/lib/tailrack-mlflow/mlflow.db").exists
    assert "MLFLOW" not in cluster.run_as("ada", "head", "srun -w a1 env")
