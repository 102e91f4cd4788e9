"""What jobs are told: a network that all their nodes have, their folder on the disk, MLflow; the user's word first."""

import shutil
import subprocess
from pathlib import Path

import pytest

from components.roles.jobs.job_hangs.watch import FIRST_PORT, PORTS
from components.roles.role import template

# A rack with two networks, of which b1 lacks one, and cards that are called otherwise on each; another site.
TOPOLOGY = """# Written by tailrack.
SwitchName=rack Nodes=a1,a2,b1
# fabric a1 1000 rack/a1/eth0/1 eth0 10.1.0.0/24 -
# fabric a1 5000 rack/a1/eth1/1 eth1 10.2.0.0/24 -
# fabric a1 2 rack/a1/rdma:InfiniBand/1 rdma:InfiniBand - mlx5_0:1,mlx5_1:1
# fabric a2 1000 rack/a1/eth0/1 ens5 10.1.0.0/24 -
# fabric a2 5000 rack/a1/eth1/1 ens6 10.2.0.0/24 -
# fabric a2 2 rack/a1/rdma:InfiniBand/1 rdma:InfiniBand - mlx5_0:1
# fabric a3 5000 rack/a1/eth1/1 ens6 10.2.0.0/24 -
# fabric b1 1000 rack/a1/eth0/1 eth0 10.1.0.0/24 -
# fabric c1 9000 office/c1/eth0/1 eth0 10.1.0.0/24 -
"""
# A rack with RoCE.
ROCE = """# fabric a1 5000 rack/a1/eth1/1 eth1 10.2.0.0/24 -
# fabric a1 1 rack/a1/rdma:Ethernet/1 rdma:Ethernet - mlx5_0:1,mlx5_1:1
"""
TYPES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
# The table of a ConnectX port with one IPv4 address, as the kernel fills it.
LINK_LOCAL = "fe80:0000:0000:0000:bace:f6ff:fe12:3456"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a02:0001"
USUAL = (f"v1 {LINK_LOCAL}", f"v2 {LINK_LOCAL}", f"v1 {IPV4}", f"v2 {IPV4}")
Settings = dict[str, str]
SLURMS_OWN = "/tmp"  # noqa: S108


class Node:
    """A node on which Slurm starts tasks."""

    def __init__(self, folder: Path) -> None:
        self.conf = folder / "topology.conf"
        self.conf.write_text(TOPOLOGY)
        (folder / "scontrol").write_text('#!/bin/sh\nprintf "%s\\n" "$3" | tr , "\\n"\n')
        (folder / "scontrol").chmod(0o755)
        text = template("fabric", "task-prolog")
        for path, here in (("/run/slurm/conf/topology.conf", "topology.conf"), ("/usr/bin/scontrol", "scontrol")):
            assert path in text
            text = text.replace(path, str(folder / here))
        self.program = folder / "task-prolog"
        self.disk = folder / "disk"
        text = text.replace("/etc/tailrack/scratch", str(folder / "scratch"))
        self.mlflow = folder / "mlflow-uri"
        text = text.replace("/etc/tailrack/mlflow-uri", str(self.mlflow))
        self.verbs, self.nccl_conf = folder / "infiniband", folder / "nccl.conf"
        for path, mine in (("/sys/class/infiniband", self.verbs), ("/etc/nccl.conf", self.nccl_conf)):
            assert path in text
            text = text.replace(path, str(mine))
        self.hangs = folder / "job-hangs"
        text = text.replace("/etc/tailrack/job-hangs", str(self.hangs))
        self.program.write_text(text.replace("/etc/slurm/topology.conf", str(folder / "none")))

    def with_disk(self, *jobs: str) -> None:
        """Have a disk of its own, with folders of jobs (role scratch)."""
        self.conf.with_name("scratch").write_text(f"{self.disk}\n/of/an/earlier/config\n")
        for job in jobs:
            (self.disk / job).mkdir(parents=True)

    def with_roce(self, device: str, *addresses: str) -> None:
        """Have a RoCE port, with its addresses (GIDs) in their order: `v1 GID` or `v2 GID`."""
        port = self.verbs / device / "ports/1"
        for number, address in enumerate(addresses):
            version, gid = address.split()
            for name, text in (("gid_attrs/types", f"{TYPES[version]}\n"), ("gids", f"{gid}\n")):
                (port / name).mkdir(parents=True, exist_ok=True)
                (port / name / str(number)).write_text(text)

    def said(self, environment: Settings) -> list[str]:
        done = subprocess.run(["sh", self.program], env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    def task(self, nodes: str, me: str = "a1", **inherited: str) -> Settings:
        """The environment of a task, as slurmstepd makes it of what the program prints."""
        environment = {"SLURM_JOB_NODELIST": nodes, "SLURMD_NODENAME": me, "PATH": "/usr/bin:/bin", **inherited}
        for line in self.said(environment):
            word, rest = line.split(" ", 1)
            if word == "export":
                name, _, value = rest.partition("=")
                environment[name] = value
            else:
                assert word == "unset"
                environment.pop(rest, None)
        return environment


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def inherited(task: Settings) -> Settings:
    """What a step gets from its batch script, or a job from the one that submitted it."""
    return {name: value for name, value in task.items() if not name.startswith("SLURM") and name != "PATH"}


def test_a_job_gets_the_best_network_that_all_its_nodes_share_by_each_nodes_own_names(node: Node) -> None:
    first, second = (node.task("a1,a2", me) for me in ("a1", "a2"))
    assert (first["NCCL_SOCKET_IFNAME"], second["NCCL_SOCKET_IFNAME"]) == ("=eth1", "=ens6")
    assert (first["NCCL_IB_HCA"], second["NCCL_IB_HCA"]) == ("=mlx5_0:1,mlx5_1:1", "=mlx5_0:1")
    assert (first["UCX_NET_DEVICES"], second["UCX_NET_DEVICES"]) == ("mlx5_0:1,mlx5_1:1,eth1", "mlx5_0:1,ens6")
    assert first["OMPI_MCA_btl_tcp_if_include"] == second["OMPI_MCA_btl_tcp_if_include"] == "10.2.0.0/24"
    assert first["PRTE_MCA_prte_if_include"] == second["PRTE_MCA_prte_if_include"] == "eth1,ens6"
    last = node.task("a1,a2,b1", "b1")
    assert (last["TAILRACK_INTERFACE"], last["PRTE_MCA_prte_if_include"]) == ("eth0", "eth0,ens5")


def test_a_job_uses_rdma_or_a_network_only_if_all_its_nodes_have_it(node: Node) -> None:
    told = node.task("a1,a3")
    assert (told["NCCL_IB_DISABLE"], told["UCX_NET_DEVICES"]) == ("1", "eth1")
    assert "NCCL_IB_HCA" not in told
    # Between sites, and with a node that shares nothing.
    for nodes in ("a1,c1", "a1,nobody", "a1,a2,nobody"):
        told = node.task(nodes)
        assert told["NCCL_SOCKET_IFNAME"] == "=tailscale0"
        names = ("OMPI_MCA_btl_tcp_if_include", "GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES")
        assert {told[name] for name in names} == {"tailscale0"}, nodes
        assert told["NCCL_NET"] == "Socket"


def test_the_task_prolog_keeps_variables_of_the_user(node: Node) -> None:
    told = node.task("a1,a2", NCCL_SOCKET_IFNAME="eth0", NCCL_IB_HCA="", UCX_NET_DEVICES="all of them")
    assert (told["NCCL_SOCKET_IFNAME"], told["NCCL_IB_HCA"]) == ("eth0", "")
    assert told["UCX_NET_DEVICES"] == "all of them"
    assert told["GLOO_SOCKET_IFNAME"] == "eth1"


def test_a_step_on_another_node_gets_that_nodes_names_and_not_those_of_its_batch_script(node: Node) -> None:
    batch = node.task("a1,a2", "a1")
    assert inherited(node.task("a1,a2", "a2", **inherited(batch))) == inherited(node.task("a1,a2", "a2"))


def test_steps_keep_the_changed_and_removed_variables_of_a_batch_script(node: Node) -> None:
    batch = inherited(node.task("a1,a2", "a1"))
    batch["NCCL_SOCKET_IFNAME"] = "eth0"
    del batch["UCX_NET_DEVICES"]
    step = node.task("a1,a2", "a2", **batch)
    assert step["NCCL_SOCKET_IFNAME"] == "eth0"
    assert "UCX_NET_DEVICES" not in step
    assert step["GLOO_SOCKET_IFNAME"] == "ens6"
    again = node.task("a1,a2", "a1", **inherited(step))
    assert again["NCCL_SOCKET_IFNAME"] == "eth0"
    assert "UCX_NET_DEVICES" not in again


def test_a_job_submitted_from_a_job_across_sites_has_nothing_of_that_ones(node: Node) -> None:
    outer = node.task("a1,c1")
    assert inherited(node.task("a1,a2", **inherited(outer))) == inherited(node.task("a1,a2"))


def test_values_are_never_run(node: Node, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    evil = f"$(touch {trap}) `touch {trap}` ; touch {trap}"
    node.task("a1,a2", NCCL_SOCKET_IFNAME=evil, TAILRACK_DEFAULTS=f"NCCL_SOCKET_IFNAME={evil} NCCL_NET=x")
    assert not trap.exists()


def test_a_job_gets_the_path_of_its_folder_on_the_disk(node: Node) -> None:
    assert "TMPDIR" not in node.task("a1", SLURM_JOB_ID="7")
    node.with_disk("7", "8")
    assert node.task("a1", SLURM_JOB_ID="7")["TMPDIR"] == f"{node.disk}/7"
    # What Slurm gives a batch script that has none is nobody's word.
    assert node.task("a1", SLURM_JOB_ID="7", TMPDIR=SLURMS_OWN)["TMPDIR"] == f"{node.disk}/7"
    assert "TMPDIR" not in node.task("a1", SLURM_JOB_ID="9")
    # A job of a job's has its own.
    first = node.task("a1", SLURM_JOB_ID="7")
    assert node.task("a1", SLURM_JOB_ID="8", **inherited(first))["TMPDIR"] == f"{node.disk}/8"


def test_the_task_prolog_keeps_the_tmpdir_of_a_user_and_unsets_another_nodes(node: Node) -> None:
    node.with_disk("7")
    assert node.task("a1", SLURM_JOB_ID="7", TMPDIR="/shared/mine")["TMPDIR"] == "/shared/mine"
    first = node.task("a1", SLURM_JOB_ID="7")
    changed = {**inherited(first), "TMPDIR": "/shared/mine"}
    assert node.task("a1", SLURM_JOB_ID="7", **changed)["TMPDIR"] == "/shared/mine"
    (node.disk / "7").rmdir()
    assert "TMPDIR" not in node.task("a1", SLURM_JOB_ID="7", **inherited(first))


def test_a_job_gets_the_address_of_mlflow_and_a_user_experiment(node: Node) -> None:
    def told(user: str = "ada", **more: str) -> Settings:
        task = node.task("a1", SLURM_JOB_USER=user, **more)
        return {name: value for name, value in task.items() if name.startswith("MLFLOW")}

    assert told() == {}
    node.mlflow.write_text("http://100.64.0.1:5000\n")
    assert told() == {"MLFLOW_TRACKING_URI": "http://100.64.0.1:5000", "MLFLOW_EXPERIMENT_NAME": "ada"}
    assert told(MLFLOW_EXPERIMENT_NAME="sweep")["MLFLOW_EXPERIMENT_NAME"] == "sweep"
    # Another server of the user's own; and one that the cluster has no more.
    assert told(MLFLOW_TRACKING_URI="https://elsewhere")["MLFLOW_TRACKING_URI"] == "https://elsewhere"
    first = inherited(node.task("a1", SLURM_JOB_USER="ada"))
    node.mlflow.unlink()
    assert told(**first) == {}
    # By a link into the share, which has the file while the server answers.
    published = node.mlflow.with_name("published")
    node.mlflow.symlink_to(published)
    assert told(**first) == {}
    published.write_text("http://100.64.0.1:5000\n")
    assert told() == {"MLFLOW_TRACKING_URI": "http://100.64.0.1:5000", "MLFLOW_EXPERIMENT_NAME": "ada"}


class Container:
    """A container that Enroot starts for job 7 on a node, and where `enroot-mount` works or not."""

    def __init__(self, node: Node, folder: Path, mounted: bool = True) -> None:
        self.environ, self.told, self._hook = folder / "environ", folder / "told", folder / "hook"
        mount = folder / "bin/enroot-mount"
        mount.parent.mkdir()
        mount.write_text(f'#!/bin/bash\necho "$*: $(cat)" >>{self.told}\nexit {0 if mounted else 1}\n')
        mount.chmod(0o755)
        text = template("fabric", "enroot-hook").replace("/usr/local/lib/tailrack/task-prolog", str(node.program))
        self._hook.write_text(text.replace("/etc/tailrack/scratch-caches", str(node.conf.with_name("scratch-caches"))))
        node.program.chmod(0o755)
        self._environment = {
            "SLURM_JOB_NODELIST": "a1", "SLURMD_NODENAME": "a1", "SLURM_JOB_ID": "7", "ENROOT_ROOTFS": "/rootfs",
            "ENROOT_ENVIRON": str(self.environ), "PATH": f"{mount.parent}:/usr/bin:/bin",
        }  # fmt: skip

    def starts(self, image: str, **job: str) -> list[str]:
        """Run the hook with the environment of an image and of the job; return the container's environment."""
        self.environ.write_text(image)
        subprocess.run(["bash", self._hook], env={**self._environment, **job}, check=True)
        return self.environ.read_text().splitlines()


def mounting(folder: str) -> str:
    return f"--root /rootfs -: {folder} {folder} none x-create=dir,bind,rw,nosuid,nodev,private\n"


@pytest.mark.parametrize("mounted", [True, False])
def test_a_container_has_the_jobs_folder_or_the_images_own(node: Node, tmp_path: Path, mounted: bool) -> None:
    node.with_disk("7")
    node.mlflow.write_text("http://100.64.0.1:5000\n")
    container = Container(node, tmp_path, mounted)
    lines = container.starts("PATH=/image\n")
    assert container.told.read_text() == mounting(f"{node.disk}/7")
    assert lines[0] == "PATH=/image"
    folder = f"{node.disk}/7" if mounted else SLURMS_OWN
    assert [line for line in lines if line.startswith("TMPDIR=")] == [f"TMPDIR={folder}"]
    assert {"TAILRACK_INTERFACE=eth1", "MLFLOW_TRACKING_URI=http://100.64.0.1:5000"} <= {*lines}


def test_an_image_overrides_neither_the_jobs_gpus_nor_its_settings_of_nccl(node: Node, tmp_path: Path) -> None:
    image = "PATH=/image\nCUDA_VISIBLE_DEVICES=0\nNCCL_IB_DISABLE=1\nNCCL_ALGO=Tree\nMY_NCCL_ALGO=kept\n"
    lines = Container(node, tmp_path).starts(f"{image}NCCL_SOCKET_IFNAME=x\n", NCCL_ALGO="Ring")
    assert lines[0] == "PATH=/image"
    assert {"MY_NCCL_ALGO=kept", "NCCL_IB_DISABLE=1", "TAILRACK_IMAGE_SETS=NCCL_IB_DISABLE"} <= {*lines}
    # Slurm chooses the GPUs, task by task; Pyxis adds the job's NCCL_ALGO where the container has none.
    assert not [line for line in lines if line.startswith(("CUDA_VISIBLE_DEVICES=", "NCCL_ALGO="))]
    assert [line for line in lines if line.startswith("NCCL_SOCKET_IFNAME=")] == ["NCCL_SOCKET_IFNAME==eth1"]


VARIABLES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "CUDA_CACHE_PATH": "cuda",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
}


@pytest.fixture
def caching(node: Node) -> Node:
    """A node whose disk has a cache folder of user 6001."""
    (node.disk / "caches" / "6001").mkdir(parents=True)
    node.conf.with_name("scratch-caches").write_text(f"{node.disk}/caches\n")
    return node


def test_caches_are_in_the_users_folder_on_the_nodes_disk_and_the_log_in_stays_in_the_home(caching: Node) -> None:
    told = caching.task("a1", SLURM_JOB_UID="6001", HOME="/shared/home/ada")
    for name, folder in VARIABLES.items():
        assert told[name] == f"{caching.disk}/caches/6001/{folder}"
    assert told["HF_TOKEN_PATH"] == "/shared/home/ada/.cache/huggingface/token"


def test_only_a_user_with_a_cache_folder_and_a_plain_home_has_all_paths(caching: Node) -> None:
    for user in ("6002", "", "6001/../6001"):
        told = caching.task("a1", SLURM_JOB_UID=user, HOME="/shared/home/bob")
        assert not told.keys() & {*VARIABLES, "HF_TOKEN_PATH"}, user
    for home in ("/home/a b", "/home/$(id)", "relative", ""):
        told = caching.task("a1", SLURM_JOB_UID="6001", HOME=home)
        assert "HF_TOKEN_PATH" not in told, home
        assert told["HF_HOME"] == f"{caching.disk}/caches/6001/huggingface"


@pytest.mark.parametrize("name", VARIABLES)
def test_a_cache_that_the_user_has_placed_stays_there(caching: Node, name: str) -> None:
    told = caching.task("a1", SLURM_JOB_UID="6001", HOME="/shared/home/ada", **{name: "/shared/mine"})
    assert told[name] == "/shared/mine"
    assert ("HF_TOKEN_PATH" in told) == (name != "HF_HOME")


def test_the_task_prolog_keeps_caches_that_follow_a_moved_cache_folder(caching: Node) -> None:
    told = caching.task("a1", SLURM_JOB_UID="6001", HOME="/shared/home/ada", XDG_CACHE_HOME="/shared/mine")
    assert not told.keys() & {"HF_HOME", "HF_TOKEN_PATH", "TORCH_HOME", "PIP_CACHE_DIR", "UV_CACHE_DIR"}
    assert told["TRITON_CACHE_DIR"] == f"{caching.disk}/caches/6001/triton"


def test_a_step_on_another_node_gets_that_nodes_caches_and_a_change_of_the_script_stays(caching: Node) -> None:
    batch = caching.task("a1", SLURM_JOB_UID="6001", HOME="/shared/home/ada")
    caching.conf.with_name("scratch-caches").write_text("\n")
    step = caching.task("a1", "a2", SLURM_JOB_UID="6001", **inherited(batch))
    assert not step.keys() & {*VARIABLES, "HF_TOKEN_PATH"}
    caching.conf.with_name("scratch-caches").write_text(f"{caching.disk}/caches\n")
    step = caching.task("a1", SLURM_JOB_UID="6001", **{**inherited(batch), "HF_HOME": "/shared/mine"})
    assert step["HF_HOME"] == "/shared/mine"
    assert "HF_TOKEN_PATH" not in step


@pytest.mark.parametrize("mounted", [True, False])
def test_a_container_has_the_users_caches_or_the_images_own(caching: Node, tmp_path: Path, mounted: bool) -> None:
    container, own = Container(caching, tmp_path, mounted), f"{caching.disk}/caches/6001"
    user = {"SLURM_JOB_UID": "6001", "HOME": "/shared/home/ada"}
    lines = container.starts("HF_HOME=/models\n", **user)
    assert container.told.read_text() == mounting(own)
    assert [line for line in lines if line.startswith("HF_HOME=")] == ["HF_HOME=/models"]
    assert not [line for line in lines if line.startswith("HF_TOKEN_PATH=")]
    assert f"TORCH_HOME={own if mounted else f'{SLURMS_OWN}/caches'}/torch" in lines
    names = {line.partition("=")[0] for line in container.starts("XDG_CACHE_HOME=/models\n", **user)}
    assert not names & {"HF_HOME", "HF_TOKEN_PATH", "TORCH_HOME", "PIP_CACHE_DIR", "UV_CACHE_DIR"}
    assert {"TRITON_CACHE_DIR", "CUDA_CACHE_PATH"} <= names


def test_a_job_gets_the_index_of_roce_version_2_that_all_its_ports_have(node: Node) -> None:
    node.conf.write_text(ROCE)
    for device in ("mlx5_0", "mlx5_1"):
        node.with_roce(device, *USUAL)
    task = node.task("a1")
    assert (task["NCCL_IB_HCA"], task["NCCL_IB_GID_INDEX"]) == ("=mlx5_0:1,mlx5_1:1", "3")
    assert node.task("a1", NCCL_IB_GID_INDEX="5")["NCCL_IB_GID_INDEX"] == "5"
    assert node.task("a1", **inherited(task))["NCCL_IB_GID_INDEX"] == "3"
    for other, why in (
        ((*USUAL[:2], f"v2 {IPV4}"), "another index"),
        (USUAL[:2], "no IPv4 address"),
        ((*USUAL, "v2 0000:0000:0000:0000:0000:ffff:0a03:0001"), "two addresses"),
        ((), "InfiniBand, or an unknown driver"),
    ):
        shutil.rmtree(node.verbs / "mlx5_1")
        (node.verbs / "mlx5_1").mkdir()
        node.with_roce("mlx5_1", *other)
        assert "NCCL_IB_GID_INDEX" not in node.task("a1"), why


def test_an_index_in_a_file_of_nccl_stays(node: Node, tmp_path: Path) -> None:
    node.conf.write_text(ROCE)
    for device in ("mlx5_0", "mlx5_1"):
        node.with_roce(device, *USUAL)
    home = tmp_path / "home"
    home.mkdir()
    for file, more in (
        (node.nccl_conf, {}),
        (home / ".nccl.conf", {"HOME": str(home)}),
        (tmp_path / "mine.conf", {"NCCL_CONF_FILE": str(tmp_path / "mine.conf")}),
    ):
        file.write_text("# NCCL_IB_GID_INDEX=7\nNCCL_DEBUG=INFO\n")
        assert node.task("a1", **more)["NCCL_IB_GID_INDEX"] == "3"
        file.write_text("NCCL_IB_GID_INDEX=7\n")
        assert "NCCL_IB_GID_INDEX" not in node.task("a1", **more)
        file.unlink()


def test_with_job_hangs_each_job_has_a_ras_port_of_its_own_and_the_users_wins(node: Node) -> None:
    assert "NCCL_RAS_ADDR" not in node.task("a1,a2", SLURM_JOB_ID="34567")
    node.hangs.write_text("10\n")
    assert node.task("a1,a2", SLURM_JOB_ID="34567")["NCCL_RAS_ADDR"] == "localhost:25567"
    assert (FIRST_PORT + 34567 % PORTS, FIRST_PORT + PORTS) == (25567, 31000)
    given = node.task("a1,a2", SLURM_JOB_ID="34567", NCCL_RAS_ADDR="localhost:28028")
    assert given["NCCL_RAS_ADDR"] == "localhost:28028"
    node.nccl_conf.write_text("NCCL_RAS_ADDR=localhost:28028\n")
    assert "NCCL_RAS_ADDR" not in node.task("a1,a2", SLURM_JOB_ID="34567")
    node.nccl_conf.unlink()
    # A job that another job submits.
    first = node.task("a1,a2", SLURM_JOB_ID="34567")
    assert node.task("a1,a2", SLURM_JOB_ID="34568", **inherited(first))["NCCL_RAS_ADDR"] == "localhost:25568"
