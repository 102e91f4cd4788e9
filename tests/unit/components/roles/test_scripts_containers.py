"""Roles enroot_pyxis and container_smoke on a machine: what is installed from where, images, and the proof."""

import base64
import fcntl
import hashlib
import json
import os
import re
import subprocess
import time
from pathlib import Path
from unittest import mock

import pytest

from components.node import files
from components.node.step.step import Step
from components.node.step.values import read_values
from components.roles.containers.enroot_pyxis import host
from components.roles.containers.enroot_pyxis.enroot import ensure_apparmor, ensure_enroot, ensure_gpu_libraries
from components.roles.containers.enroot_pyxis.host import pod as refuse_on_pod
from components.roles.containers.enroot_pyxis.plugin import ensure_launcher, ensure_plugin, plugin_kind
from components.roles.containers.enroot_pyxis.role import UNIT
from components.roles.containers.enroot_pyxis.settings import FILES, FILES_ARM
from components.roles.program import command_line
from components.roles.role import Role, Value, template
from components.steps.composition import compose
from tests.unit.shell import Shell, assert_ok

NAMES = (*FILES[:2], FILES[2])
CONTENT = {name: f"content of {name}\n" for name in NAMES}
PROGRAM = "/usr/local/sbin/tailrack-containers"
IMPORTER = "/usr/local/lib/tailrack/importer"
SHARE = "export/shared/containers"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


ARTIFACTS = [f"{name} {digest(text)}" for name, text in CONTENT.items()]
CONTENTS = [f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in CONTENT.items()]


NODE_STEP = Step("a1", "a1-node")


def values(**more: Value) -> host.HeadValues:
    """The phases' values; the share is a folder of the machine on the head node and on nodes alike."""
    own: dict[str, Value] = {
        "enroot_pyxis_artifacts": ARTIFACTS,
        "enroot_pyxis_contents": CONTENTS,
        "enroot_pyxis_pyxis": "0.24.0",
        "enroot_pyxis_local": "/local",
        "enroot_pyxis_imported_gb": 100,
        "enroot_pyxis_nvidia_libraries": True,
        "enroot_pyxis_launcher": template("enroot_pyxis", "slurmstepd.c"),
        "share_path": "/export/shared",
        "share_mount": "/export/shared",
        "node_site": "cloud-a",
        "slurm_release": "",
    }
    read: host.HeadValues = read_values(host.HeadValues, {**own, **more})
    return read


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with stubs for what would need root; every file there is root's."""
    shell.stubs("dpkg", "apt-get", "apt-cache", "chown", "modprobe", "sleep")
    cases = '*Upstream*) printf 24.11.5 ;; *) shift 2; for one; do echo "$one installed 1"; done ;;'
    shell.stub("dpkg-query", f'case "$*" in {cases} esac')
    shell.write("etc/os-release", "ID=debian\nVERSION_ID=13\n")
    shell.stub("dpkg", 'case "$*" in *print-architecture) echo amd64 ;; esac')
    return shell


# --- the gate


@pytest.mark.parametrize("name", ["user/max_user_namespaces", "kernel/unprivileged_userns_clone"])
def test_a_machine_that_makes_no_namespaces_for_users_is_refused_with_the_remedy(machine: Shell, name: str) -> None:
    machine.write(f"proc/sys/{name}", "0\n")
    failed = gate(machine)
    assert name.replace("/", ".") in failed
    assert "sysctl -w" in failed


def gate(shell: Shell, **more: Value) -> str:
    """Run the check."""
    return shell.failure_of(host.check, NODE_STEP, values(**more).enroot_pyxis_artifacts)


def test_a_machine_of_another_architecture_installs_the_packages_of_the_config(machine: Shell) -> None:
    machine.stub("dpkg", 'case "$*" in *print-architecture) echo arm64 ;; esac')
    assert gate(machine).startswith("this machine is arm64, ")
    named = {name: f"content of {name}\n" for name in (*FILES_ARM, *NAMES)}
    lines = [f"{name} {digest(text)}" for name, text in named.items()]
    machine.write("dev/fuse", "")
    assert gate(machine, enroot_pyxis_artifacts=lines) == ""
    for name, text in named.items():
        machine.write(f"{SHARE}/artifacts/{name}", text)
    assert machine.failure_of(ensure_enroot, NODE_STEP, values(enroot_pyxis_artifacts=lines)) == ""
    (call,) = [call for call in machine.calls if call.startswith("dpkg --force-confold -i")]
    assert [Path(word).name for word in call.split()[3:]] == list(FILES_ARM)


# --- files, and the plugin


def fetched(shell: Shell, **more: Value) -> str:
    """Put the files on the share; what that failed with."""
    return shell.failure_of(host.fetch_artifacts, NODE_STEP, values(**more))


def test_a_file_with_another_checksum_is_refused_and_not_kept_or_installed(machine: Shell) -> None:
    wrong = [f"{NAMES[0]} {'0' * 64}", *ARTIFACTS[1:]]
    said = fetched(machine, enroot_pyxis_artifacts=wrong)
    assert f"has the checksum {digest(CONTENT[NAMES[0]])}, which is not the config's" in said
    assert list(machine.path(f"{SHARE}/artifacts").iterdir()) == []
    assert fetched(machine) == ""
    machine.write(f"{SHARE}/artifacts/{NAMES[1]}", "planted\n")
    said = machine.failure_of(ensure_enroot, NODE_STEP, values())
    assert "on the share does not have the checksum in the config" in said
    assert not [call for call in machine.calls if " -i " in call]


def test_files_of_an_address_are_fetched_by_https_once(machine: Shell) -> None:
    machine.stub("curl", 'while [ "$1" != -o ]; do shift; done; printf "content of %s\\n" "${3##*/}" >"$2"')
    lines = [f"{line} https://files.example/{line.split()[0]}" for line in ARTIFACTS]
    more: dict[str, Value] = {"enroot_pyxis_artifacts": lines, "enroot_pyxis_contents": ""}
    assert fetched(machine, **more) == fetched(machine, **more) == ""
    calls = [call for call in machine.calls if call.startswith("curl")]
    assert len(calls) == 3
    assert all("--proto =https" in call for call in calls)


KIND = "debian-13-amd64-slurm-24.11.5-pyxis-0.24.0"


def plugin_on_the_share(shell: Shell, content: str = "a plugin\n", told: str = "") -> None:
    sums = ""
    for name, text, sum_told in (("spank_pyxis.so", content, told), ("slurmstepd", "a launcher\n", "")):
        shell.write(f"{SHARE}/pyxis/{KIND}/{name}", text)
        sums += f"{sum_told or digest(text)}  {name}\n"
    shell.write(f"{SHARE}/pyxis/{KIND}/SHA256SUMS", sums)


def install_plugin(shell: Shell) -> str:
    """Run ensure_plugin, with a compiler that makes `compiled`; return the installed plugin's text."""
    shell.stub("make", 'echo compiled >"$3/spank_pyxis.so"')
    shell.stub("tar")
    shell.stub("gcc", 'echo static >"$4"')
    assert fetched(shell) == ""
    assert shell.failure_of(lambda: ensure_plugin(NODE_STEP, values(), plugin_kind(values()))) == ""
    return shell.path("/usr/local/lib/tailrack/spank_pyxis.so").read_text()


def test_a_node_takes_the_head_nodes_plugin_for_its_kind(machine: Shell) -> None:
    plugin_on_the_share(machine)
    assert install_plugin(machine) == "a plugin\n"
    assert not [call for call in machine.calls if call.startswith("make")]


@pytest.mark.parametrize("wrong", ["0" * 64, "half a checks", "owner"])
def test_a_plugin_that_is_not_whole_or_not_roots_is_not_taken(machine: Shell, wrong: str) -> None:
    plugin_on_the_share(machine, told="" if wrong == "owner" else wrong)
    owner_of = files.owner_of
    others = "ada" if wrong == "owner" else "root"
    theirs = mock.Mock(side_effect=lambda path: others if path.startswith("/export") else owner_of(path))
    with mock.patch.object(files, "owner_of", theirs):
        assert install_plugin(machine) == "compiled\n"


def test_a_node_of_another_kind_compiles_its_own_and_leaves_the_share_alone(machine: Shell) -> None:
    plugin_on_the_share(machine)
    machine.write("etc/os-release", "ID=ubuntu\nVERSION_ID=24.04\n")
    assert install_plugin(machine) == "compiled\n"
    assert [path.name for path in machine.path(f"{SHARE}/pyxis").iterdir()] == [KIND]
    assert install_plugin(machine) == "compiled\n"
    assert len([call for call in machine.calls if call.startswith("make")]) == 1


def test_slurmd_restarts_once_to_use_the_step_launcher(machine: Shell) -> None:
    machine.stub("systemctl")
    for _ in range(2):
        assert machine.failure_of(ensure_launcher, NODE_STEP) == ""
    dropin = machine.path("/etc/systemd/system/slurmd.service.d/tailrack-containers.conf").read_text()
    assert re.search(r'^Environment="TAILRACK_SLURMD_OPTIONS=-d \S*/usr/local/lib/tailrack/slurmstepd"$', dropin, re.M)
    assert len([call for call in machine.calls if "try-restart slurmd" in call]) == 1


def test_the_launcher_starts_scripts_by_itself_and_steps_by_slurmstepd(tmp_path: Path) -> None:
    source, program = tmp_path / "launcher.c", tmp_path / "launcher"
    real = tmp_path / "slurmstepd"
    real.write_text('#!/bin/sh\necho "step $*"\n')
    real.chmod(0o755)
    source.write_text(template("enroot_pyxis", "slurmstepd.c").replace("/usr/sbin/slurmstepd", str(real)))
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-static", "-o", program, source], check=True)
    script = ["slurm_script_launcher", "/bin/echo", "/bin/echo", "from the prolog"]
    for words, said in ((script, "from the prolog\n"), (["infinity"], "step infinity\n"), ([], "step \n")):
        assert subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout == said


def test_nodes_without_containers_are_held_before_users_may_ask_for_them(machine: Shell) -> None:
    machine.stub(
        "scontrol",
        """if [ "$1" = show ]; then echo '{"nodes": [{"name": "old", "state": ["IDLE"], "extra": ""},
            {"name": "new", "state": ["IDLE"], "extra": "containers=proven images="},
            {"name": "out", "state": ["IDLE", "DRAIN"], "extra": ""}, {"name": "older", "state": ["MIXED"]}]}'; fi""",
    )
    assert machine.failure_of(host.hold_nodes_without_containers) == ""
    held = [call.split()[2] for call in machine.calls if call.startswith("scontrol update")]
    assert held == ["nodename=old", "nodename=older"]
    assert all("reason=tailrack: containers are not" in call for call in machine.calls if "update" in call)


def test_a_pod_gets_the_plugin_that_fails_jobs_with_containers(machine: Shell) -> None:
    machine.stub("gcc", 'while [ "$1" != -o ]; do shift; done; cp "$3" "$2"')
    refusal = "int source;"
    assert machine.failure_of(refuse_on_pod, NODE_STEP, refusal) == ""
    plugin = "/usr/local/lib/tailrack/no-containers.so"
    assert machine.path("/etc/tailrack/plugstack.d/pyxis.conf").read_text() == f"required {plugin}\n"
    assert machine.path(plugin).stat().st_mode & 0o777 == 0o755
    machine.stub("gcc", "echo no spank.h >&2; exit 1")
    failed = machine.failure_of(refuse_on_pod, NODE_STEP, refusal)
    assert "no spank.h" in failed
    assert "repair gcc or libslurm-dev" in failed


def test_slurms_plugin_file_gets_one_line_more_once(machine: Shell) -> None:
    machine.write("etc/slurm/plugstack.conf", "include /etc/slurm/plugstack.conf.d/*.conf\n")
    machine.stub("scontrol")
    for _ in range(2):
        assert machine.failure_of(host.ensure_plugstack) == ""
    lines = machine.path("/etc/slurm/plugstack.conf").read_text().splitlines()
    included = [line.rpartition("/etc/")[2] for line in lines]
    assert included == ["slurm/plugstack.conf.d/*.conf", "tailrack/plugstack.d/*.conf"]
    assert machine.calls.count("scontrol reconfigure") == 1


# --- GPUs and AppArmor


def test_with_gpus_the_driver_libraries_tool_must_be_had_or_be_waived(machine: Shell) -> None:
    def problem(**more: Value) -> str:
        return machine.failure_of(ensure_gpu_libraries, NODE_STEP, values(**more))

    assert problem() == "", "without GPUs"
    machine.write("dev/nvidia0", "")
    assert "none of its package sources has libnvidia-container-tools" in problem()
    assert "nvidia_libraries: false" in problem()
    assert problem(enroot_pyxis_nvidia_libraries=False) == ""
    machine.stub("nvidia-container-cli")
    assert problem() == ""


@pytest.mark.parametrize(("abi", "left_out"), [("3.0", True), ("4.0", False)])
def test_the_step_skips_a_profile_that_apparmor_cannot_parse(machine: Shell, abi: str, left_out: bool) -> None:
    machine.write(f"etc/apparmor.d/abi/{abi}", "")
    link = machine.path("/etc/apparmor.d/disable/enroot")
    cases = f'*print-architecture) echo amd64 ;; *" -i "*) [ ! -L {link} ] || touch {link}.seen ;;'
    machine.stub("dpkg", f'case "$*" in {cases} esac')
    for name in NAMES:
        machine.write(f"{SHARE}/artifacts/{name}", CONTENT[name])
    assert machine.failure_of(ensure_enroot, NODE_STEP, values()) == ""
    assert link.is_symlink() == machine.path("/etc/apparmor.d/disable/enroot.seen").exists() == left_out


def test_the_step_loads_the_enroot_profile_if_apparmor_blocks_user_namespaces(machine: Shell) -> None:
    machine.stub("apparmor_parser")
    for restricted, loaded in (("0\n", ""), ("1\n", "enroot-nsenter (unconfined)\n")):
        machine.write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", restricted)
        machine.write("sys/kernel/security/apparmor/profiles", loaded)
        assert machine.failure_of(ensure_apparmor, NODE_STEP) == ""
    assert not [call for call in machine.calls if call.startswith("apparmor")]
    machine.write("sys/kernel/security/apparmor/profiles", "")
    assert machine.failure_of(ensure_apparmor, NODE_STEP) == ""
    assert [call for call in machine.calls if call.startswith("apparmor_parser -r ")]


# --- images on the share

FOLDER = f"{SHARE}/images"
IMAGE = "hello all puller@registry.example#team/hello:1"


@pytest.fixture
def head(machine: Shell) -> Shell:
    """A head node whose import makes an image that says `an image`."""
    machine.write("/etc/passwd", "tailrack-images:x:998:998::/nonexistent:/usr/sbin/nologin\n")
    root = machine.root
    machine.stub("runuser", f"[ -e {root}/broken ] || echo 'an image' >{root}/var/lib/tailrack/images/image.sqsh")
    machine.stub("unsquashfs", '[ -s "$2" ] && ! grep -q nonsense "$2"')
    return machine


def services(shell: Shell, *images: str, credentials: str = "") -> tuple[int, str]:
    given: dict[str, Value] = {
        "enroot_pyxis_images": list(images),
        "enroot_pyxis_credentials": credentials,
        "share_path": "/export/shared",
    }
    done = shell.step(compose([Role("enroot_pyxis")], ["services"]), given)
    return done.returncode, done.stdout + done.stderr


def images_there(shell: Shell) -> list[str]:
    return sorted(path.name for path in shell.path(FOLDER).iterdir())


def test_an_import_that_fails_leaves_the_old_image_and_nothing_half(head: Shell) -> None:
    assert services(head, IMAGE)[0] == 0
    before = head.path(f"{FOLDER}/hello.sqsh").read_text()
    head.write("broken", "")
    status, said = services(head, IMAGE.replace(":1", ":2"), "other all ubuntu")
    assert status == 1
    assert "these images could not be imported: hello, other" in said
    assert images_there(head) == ["hello.image", "hello.sqsh"]
    assert head.path(f"{FOLDER}/hello.sqsh").read_text() == before
    assert not head.path("/var/lib/tailrack/images").exists()


def test_an_import_removes_the_files_of_an_interrupted_import(head: Shell) -> None:
    own = ["var/lib/tailrack/images/x", "run/tailrack-images/.credentials"]
    for left in (f"{FOLDER}/.hello.new", f"{FOLDER}/hello.coming", *own):
        head.write(left, "half")
    assert services(head)[0] == 0
    assert images_there(head) == []
    assert not head.path("/run/tailrack-images").exists()
    assert not head.path("/var/lib/tailrack/images").exists()


def test_a_link_or_a_file_that_is_no_image_is_refused(head: Shell) -> None:
    head.write("export/x.sqsh", "nonsense")
    assert services(head, "mine all /export/x.sqsh")[0] == 1
    head.write("export/x.sqsh", "an image")
    assert services(head, "mine all /export/x.sqsh")[0] == 0
    assert not [call for call in head.calls if call.startswith("runuser")]
    head.write("etc/shadow", "secret hashes\n")
    head.stub("runuser", f'ln -s "{head.root}/etc/shadow" "{head.root}/var/lib/tailrack/images/image.sqsh"')
    assert services(head, IMAGE)[0] == 1
    assert images_there(head) == []


def test_images_that_are_asked_for_no_more_are_taken_away(head: Shell) -> None:
    assert services(head, IMAGE, "other all ubuntu")[0] == 0
    assert services(head, "other all ubuntu")[0] == 0
    assert images_there(head) == ["other.image", "other.sqsh"]


def test_a_log_in_and_a_proxy_are_lent_and_gone_afterwards_and_in_no_argument(head: Shell) -> None:
    head.write("etc/environment", "https_proxy='http://me:nobody-may-see@proxy.example:3128'\n")
    keep = f'cp "{head.root}/run/tailrack-images/.credentials" "{head.root}/seen"; cat >"{head.root}/proxy"'
    head.stub("runuser", f'{keep}; echo "an image" >"{head.root}/var/lib/tailrack/images/image.sqsh"')
    status, said = services(head, IMAGE, credentials="machine registry.example login puller password nobody-may-see\n")
    assert status == 0
    assert head.path("seen").read_text().strip() == "machine registry.example login puller password nobody-may-see"
    assert head.path("proxy").read_text() == "export https_proxy=http://me:nobody-may-see@proxy.example:3128\n"
    assert not head.path("/run/tailrack-images").exists()
    assert "nobody-may-see" not in said + "".join(head.calls)


# --- the program on each machine


@pytest.fixture
def node(machine: Shell) -> Shell:
    """A node of cloud-a with the programs, the plugin and the share; its Slurm is a file with the node's state."""
    root = machine.root
    settings = f"SHARED={root}/{SHARE}\nLOCAL={root}/local\nSITE=cloud-a\nNODE=a1\nIMPORTED_GB=2\n"
    machine.write("etc/tailrack/containers", settings)
    program = template("enroot_pyxis", UNIT).replace(command_line("as-user"), "runuser")
    machine.write(PROGRAM.lstrip("/"), machine.inside(program) + "\n").chmod(0o755)
    machine.write(IMPORTER.lstrip("/"), machine.inside(template("enroot_pyxis", "importer")) + "\n").chmod(0o755)
    for path in (f"{FOLDER}", "local/images", "run/pyxis/6001"):
        machine.path(path).mkdir(parents=True)
    plugin = machine.write("usr/local/lib/tailrack/spank_pyxis.so", "a plugin\n")
    machine.write("etc/tailrack/plugstack.d/pyxis.conf", f"required {plugin} container_scope=global\n")
    state = "var/lib/tailrack/containers"
    machine.write(f"{state}/plugin", digest("a plugin\n") + "\n")
    machine.write(f"{state}/inside", "tailrack inside 1234\n")
    machine.write(f"{state}/smoke", "user=ada\n")
    machine.write("node.json", '{"nodes": [{"name": "a1", "state": ["IDLE"], "reason": "", "extra": ""}]}')
    machine.stub("scontrol", f'if [ "$1" = show ]; then cat "{root}/node.json"; fi')
    machine.stub("runuser", f'cat "{root}/var/lib/tailrack/containers/inside"')
    machine.stub("enroot")
    machine.stub("id", "echo ada")
    return machine


def staged(shell: Shell, name: str, text: str, where: str = "all", told: str = "") -> None:
    shell.write(f"{FOLDER}/{name}.sqsh", text)
    shell.write(f"{FOLDER}/{name}.image", f"source=x\nsha256={told or digest(text)}\nwhere={where}\n")


def local(shell: Shell) -> list[str]:
    return sorted(path.name for path in shell.path("local/images").iterdir())


def drained(shell: Shell) -> list[str]:
    return [call.partition("reason=")[2] for call in shell.calls if "state=drain" in call]


def test_a_node_has_the_images_of_its_site_and_says_so(node: Shell) -> None:
    staged(node, "one", "first")
    staged(node, "two", "second", where="cloud-x,cloud-a")
    staged(node, "far", "third", where="cloud-b")
    staged(node, "shared", "fourth", where="none")
    assert_ok(node.program(PROGRAM, "sync"))
    assert local(node) == ["one.image", "one.sqsh", "two.image", "two.sqsh"]
    (told,) = [call for call in node.calls if "extra=" in call]
    assert told.endswith(f"images=one@{digest('first')[:12]},two@{digest('second')[:12]}")


def test_the_list_replaces_control_characters_in_the_text_of_a_node(node: Shell) -> None:
    told = {"nodes": [{"name": "a1", "extra": "containers=proven\u001b[2J images=one\u0007@1\u009b2J"}, {"name": "a2"}]}
    node.write("node.json", json.dumps(told))
    done = assert_ok(node.program(PROGRAM, "list"))
    rows = [line.split() for line in done.stdout.splitlines()[-2:]]
    assert rows == [["a1", "proven?[2J", "one?@1?2J"], ["a2"]]


def test_a_node_follows_the_published_images_while_the_share_answers(node: Shell) -> None:
    staged(node, "one", "first", told=digest("whole"))
    done = assert_ok(node.program(PROGRAM, "sync"))
    assert "could not be copied" in done.stderr
    assert local(node) == []
    staged(node, "one", "first")
    staged(node, "two", "second")
    assert node.program(PROGRAM, "sync").returncode == 0
    staged(node, "one", "other")
    node.path(f"{FOLDER}/two.image").unlink()
    assert node.program(PROGRAM, "sync").returncode == 0
    assert local(node) == ["one.image", "one.sqsh"]
    assert node.path("local/images/one.sqsh").read_text() == "other"
    node.path(FOLDER).rename(node.path("away"))
    assert "the share does not answer" in node.program(PROGRAM, "sync").stderr
    assert local(node) == ["one.image", "one.sqsh"]


def test_a_job_that_is_not_inside_drains_the_node_with_the_reason(node: Shell) -> None:
    node.stub("logger", f'cat >>"{node.root}/journal"')
    bare = "inside a container: it printed another text than its image's, as on the bare machine"
    missing, status = "pyxis: [ERROR] No such file: /etc/localtime", "slurmstepd: error: TaskProlog failed status=127"
    for job, reason in (
        ("echo Debian", f"{bare}: Debian"),
        ("true", f"{bare}: nothing"),
        ("echo 'pyxis: no namespaces' >&2; exit 1", "does not run inside a container: pyxis: no namespaces"),
        (f"echo 'error: start failed'; echo '{missing}'; exit 1", f"does not run inside a container: {missing}"),
        (f"echo 'pyxis: importing'; echo '{status}'; seq 999; exit 1", f"does not run inside a container: {status}"),
    ):
        node.stub("runuser", job)
        assert node.program(PROGRAM, "prove").returncode == 1, job
        said = drained(node)[-1]
        assert len(said) < 400
        assert "OBJECT_SYSTEMD_UNIT=slurmd.service" in node.path("journal").read_text()
        assert said.startswith("tailrack: containers: a job ")
        assert reason in said


@pytest.mark.parametrize("gone", ["usr/local/lib/tailrack/spank_pyxis.so", "etc/tailrack/plugstack.d/pyxis.conf"])
def test_a_plugin_that_is_gone_drains_a_node_that_was_proven(node: Shell, gone: str) -> None:
    assert node.program(PROGRAM, "keep").returncode == 0
    node.path(gone).unlink()
    assert node.program(PROGRAM, "keep").returncode == 1
    (said,) = drained(node)
    assert "run up again" in said
    assert not node.path("/var/lib/tailrack/containers/proven").exists()


# --- what Pyxis asks for an image


def importer(shell: Shell, *words: str) -> tuple[int, str, str]:
    environment = f"PYXIS_RUNTIME_PATH={shell.root}/run/pyxis SLURM_JOB_UID=6001 SLURM_JOB_ID=7 SLURM_STEP_ID=0"
    done = shell.run(f"{environment} {shell.path(IMPORTER)} {' '.join(words)}")
    return done.returncode, done.stdout.strip(), done.stderr


def user_folder(shell: Shell) -> Path:
    """Make the folder that the prolog makes. The stub of Enroot imports into it for people with access."""
    shell.stub(
        "enroot",
        f"""case $1 in digest) [ ! -e "{shell.root}/refused" ] && cat "{shell.root}/digest" ;;
            import) [ ! -e "$3" ] && echo "$4 by $ENROOT_CACHE_PATH" >"$3" ;; esac""",
    )
    shell.stub("sync", '[ -s "$2" ]')
    shell.write("digest", f"sha256:{'a' * 64}")
    folder = shell.path("local/imported/user-6001-ada")
    folder.mkdir(parents=True)
    return folder


def image_file(folder: Path, character: str, repository: str) -> str:
    return str(folder / f"{character * 64}-{digest(f'docker://{repository}' + chr(10))[:32]}.sqsh")


def test_an_image_is_imported_once_by_each_user_repository_and_digest(node: Shell) -> None:
    folder = user_folder(node)
    (folder / "new").write_text("half of an image")
    for tag in ("25.08-py3", "latest"):
        status, path, _ = importer(node, "get", f"'docker://nvcr.io#nvidia/pytorch:{tag}'")
        assert (status, path) == (0, image_file(folder, "a", "nvcr.io#nvidia/pytorch"))
        assert importer(node, "release")[0] == 0
    assert Path(path).read_text() == f"docker://nvcr.io#nvidia/pytorch:25.08-py3@sha256:{'a' * 64} by {folder}\n"
    assert Path(path).stat().st_mode & 0o777 == 0o400
    assert f"sync -f {folder}/new" in node.calls, "a power cut leaves no half image with the name of a whole one"
    claimed = importer(node, "get", "'docker://bad.example:5000#nvidia/pytorch'")[1]
    assert claimed == image_file(folder, "a", "bad.example:5000#nvidia/pytorch")
    assert importer(node, "get", f"docker://ubuntu@sha256:{'b' * 64}")[1] == image_file(folder, "b", "ubuntu")
    assert len([call for call in node.calls if "enroot digest" in call]) == 3, "a digest is not looked up again"
    node.write("digest", "sha256:../../x")
    assert importer(node, "get", "docker://ubuntu")[:2] == (1, "")
    node.write("refused", "")
    assert importer(node, "get", "'docker://nvcr.io#nvidia/pytorch:25.08-py3'")[:2] == (1, "")
    (folder / "layer").write_text("half of a layer")
    node.stub("enroot", "exit 1")
    assert importer(node, "get", f"docker://ubuntu@sha256:{'c' * 64}")[:2] == (1, "")
    assert sorted(path.name[0] for path in folder.iterdir()) == ["a", "a", "b"], "no layer"


def test_steps_that_start_at_once_import_an_image_once(node: Shell) -> None:
    user_folder(node)
    step = f"PYXIS_RUNTIME_PATH=/x SLURM_JOB_UID=6001 SLURM_JOB_ID=7 {node.path(IMPORTER)} get docker://ubuntu"
    done = assert_ok(node.run(f"for n in 1 2 3 4; do {step} & done; wait"))
    assert len(done.stdout.splitlines()) == 4
    assert len([call for call in node.calls if call.startswith("enroot import")]) == 1


def test_images_make_room_by_their_last_use_and_others_files_stay(node: Shell) -> None:
    mine = user_folder(node)
    other = node.path("local/imported/user-6002-bob")
    other.mkdir()
    keep = node.write("elsewhere/keep", "root's")
    (node.path("local/imported") / "user-6003").symlink_to(keep.parent)
    node.write("local/imported/user-6001-ada/own/large", "this user's")
    for age, path in enumerate([other / "b", mine / "c", mine / "x\n1 keep", other / "z", mine / "new"], 1):
        path.write_text("1 GB")
        os.utime(path, (0, time.time() - 3600 * age))
    os.utime(keep, (0, 0))
    node.stub("du", "tr -dc '\\0' | wc -c")
    # A step gets an image while this looks for old ones.
    node.stub("df", f'touch "{mine}/new"; echo "Use%"; cat "{node.root}/full"')
    node.write("full", " 90%")
    locked = os.open(other, os.O_RDONLY)
    fcntl.flock(locked, fcntl.LOCK_EX)
    assert_ok(node.program(PROGRAM, "keep"))
    assert (images_of(mine), images_of(other), keep.exists()) == (["new"], ["b", "z"], True)
    os.close(locked)
    assert_ok(node.program(PROGRAM, "keep"))
    assert (images_of(mine), images_of(other)) == (["new"], ["b"])
    node.write("full", " 91%")
    assert_ok(node.program(PROGRAM, "keep"))
    assert (images_of(mine), images_of(other)) == (["new"], []), "an image that was just used stays"


def images_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("image", ["dockerd://ubuntu", "docker://../../etc/x"])
def test_without_a_folder_of_the_user_an_image_is_imported_for_the_step(node: Shell, image: str) -> None:
    status, path, _ = importer(node, "get", image)
    assert (status, path) == (0, str(node.path("/run/pyxis/6001/7.0.sqsh")))
    assert node.calls == ["id -un", f"enroot import --output {path} {image}"]
    node.write("run/pyxis/6001/7.0.sqsh", "an image")
    assert importer(node, "release")[0] == importer(node, "release")[0] == 0
    assert not node.path("/run/pyxis/6001/7.0.sqsh").exists()


# --- leaving


def test_a_machine_that_leaves_knows_no_containers_any_more(node: Shell) -> None:
    kept = "include /etc/slurm/plugstack.conf.d/*.conf"
    node.write("etc/slurm/plugstack.conf", f"{kept}\ninclude /etc/tailrack/plugstack.d/*.conf\n")
    lent = node.write("run/tailrack-images/.credentials", "machine registry.example login puller password p")
    half = node.write("var/lib/tailrack/images/config.json", "half an image")
    for _ in range(2):
        assert node.failure_of(host.leave, NODE_STEP) == ""
    assert node.path("/etc/slurm/plugstack.conf").read_text() == f"{kept}\n"
    assert (lent.exists(), half.exists()) == (False, False), "of an import that was killed"
    for gone in ("etc/tailrack/containers", "usr/local/lib/tailrack/spank_pyxis.so"):
        assert not node.path(gone).exists(), gone


def test_the_first_users_job_proves_that_containers_run_or_the_step_fails(shell: Shell) -> None:
    for status, said in ((0, '{"containers":"proven"}\n'), (3, '{"containers":"not proven yet: busy"}\n'), (1, "")):
        shell.write(PROGRAM, f"#!/bin/bash\necho a first line; echo 'no container: bad plugin' >&2; exit {status}\n")
        shell.path(PROGRAM).chmod(0o755)
        phase = compose([Role("container_smoke")], ["compute"])
        done = shell.step(phase, {"users_lines": ["ada 6001 6001", "bob 6002 6002"]})
        assert (done.returncode, done.stdout) == (0 if said else 1, said), status
        if not said:
            assert "containers do not run here, and the node is drained: no container: bad plugin\n" in done.stderr
        assert shell.path("/var/lib/tailrack/containers/smoke").read_text() == "user=ada\n", status
