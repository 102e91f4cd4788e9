"""Files of the kernel, its table of mounts, and limits of containers in trees of /sys/fs/cgroup."""

from pathlib import Path

import pytest

from components.node import kernel, safe_path
from components.node.kernel import cpu_limit, memory_limit_mb, mounts, mounts_at
from components.node.systemd import name_of_path
from tests.unit.shell import Shell


def test_files_of_the_kernel_are_read_and_written_and_no_error_is_raised(shell: Shell) -> None:
    shell.write("proc/sys/net/setting", "1\n")
    with shell.here():
        assert kernel.read("/proc/sys/net/setting") == "1\n"
        assert kernel.write("/proc/sys/net/setting", "2\n")
        assert kernel.read("/proc/sys/net/setting") == "2\n"
        assert kernel.names_in("/proc/sys/net") == ["setting"]
        assert kernel.exists("/proc/sys/net/setting")
        assert (kernel.read("/sys/none"), kernel.names_in("/sys/none"), kernel.exists("/sys/none")) == ("", [], False)
        assert not kernel.write("/sys/none/setting", "1\n")


TABLE = r"""22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw
28 1 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw,errors=remount-ro
40 28 0:40 / /srv/a\040b rw - nfs nas:/a\040b rw,vers=3
41 28 0:41 /x /srv/a\040b rw - nfs4 nas:/x rw,vers=4.2
"""


def test_mounts_have_places_and_options_with_the_top_one_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_path, "root", str(tmp_path))
    assert mounts() == []
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(TABLE)
    assert [mount.target for mount in mounts()] == ["/proc", "/", "/srv/a b", "/srv/a b"]
    below, top = mounts_at("/srv/a b")
    assert (below.type, below.source, top.root, top.device) == ("nfs", "nas:/a b", "/x", "0:41")
    assert "vers=3" in below.options
    (first,) = mounts_at("/")
    assert first.options == {"rw", "relatime", "errors=remount-ro"}


# As systemd-escape --path prints them.
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/shared", "shared"),
        ("/srv/.x-y/a_b//c", r"srv-.x\x2dy-a_b-c"),
        ("/.hid", r"\x2ehid"),
        ("/data/a.b:c/", "data-a.b:c"),
        ("/", "-"),
    ],
)
def test_a_unit_of_a_path_has_the_name_that_systemd_looks_for(path: str, name: str) -> None:
    assert name_of_path(path) == name


Tree = dict[str, str]
ID = "e9dbf1007eadb103807345abfa329dc4aaa188ac9dc4631738a8233ef1ede516"
V1 = "\n".join(
    f"{number}:{name}:{{path}}" for number, name in ((9, "name=systemd"), (4, "memory"), (2, "cpuacct"), (1, "cpu"))
)
NO_LIMIT_OF_V1 = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
NO_LIMIT_OF_V1["memory/memory.limit_in_bytes"] = "9223372036854771712"
MACHINES: dict[str, tuple[str, Tree, int | None, int | None]] = {
    "a machine of its own": ("0::/init.scope", {"cgroup.controllers": "cpuset cpu memory"}, None, None),
    "Docker with its own namespace": (
        "0::/init.scope", {"cpu.max": "400000 100000", "memory.max": "2147483648"}, 4, 2048,
    ),
    "Docker without a limit": ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, None, None),
    "a part of a CPU is a whole one": ("0::/", {"cpu.max": "50000 100000"}, 1, None),
    "one and a half CPUs are one": ("0::/", {"cpu.max": "150000 100000"}, 1, None),
    "Docker in the host's namespace": (
        f"0::/docker/{ID}/init.scope",
        {f"docker/{ID}/cpu.max": "800000 100000", f"docker/{ID}/memory.max": "1073741824"}, 8, 1024,
    ),
    "a parent with less": (
        "0::/lxc/one/init.scope",
        {"lxc/one/memory.max": "4294967296", "lxc/memory.max": "1073741824", "lxc/cpu.max": "max 100000"}, None, 1024,
    ),
    "a limit of systemd's own scope": ("0::/init.scope", {"init.scope/memory.max": "1048576"}, None, None),
    "a path outside of its namespace": ("0::/../../x", {"memory.max": "1073741824"}, None, 1024),
    # Recorded: Docker 20.10, `docker run --cpus 1.5 --memory 512m`; the path is the host's, which the container lacks.
    "Docker on version 1": (
        V1.format(path=f"/docker/{ID}") + f"\n0::/docker/{ID}",
        {
            "cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": "536870912",
        }, 1, 512,
    ),
    "a machine on version 1": (V1.format(path="/"), NO_LIMIT_OF_V1, None, 8796093022207),
    "CPUs that share a mount with their times": (
        "3:cpu,cpuacct:/docker/x", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2, None,
    ),
    "nonsense": ("0::\nx\n:::", {"cpu.max": "1 0", "memory.max": "-5"}, None, None),
    "no file at all": ("", {}, None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_may_use_as_much_as_the_cgroup_of_its_first_process(shell: Shell, name: str) -> None:
    cgroup, tree, cpus, memory_mb = MACHINES[name]
    shell.write("proc/1/cgroup", f"{cgroup}\n")
    for path, text in tree.items():
        shell.write(f"sys/fs/cgroup/{path}", f"{text}\n")
    with shell.here():
        assert (cpu_limit(), memory_limit_mb()) == (cpus, memory_mb)
