"""Pyxis, Slurm's plugin for containers, and the program that slurmd starts instead of slurmstepd.

They run as root, so they come from the head node, which is trusted, or are compiled here; never from another node,
whose root could then run code as root on others. Each node has its own `required` line, written after the plugin: if a
shared list required it, a reconfiguration would end every slurmd that has no plugin yet (24.11). With `optional`, `srun
--container-image` runs on the bare machine, with only a warning.
"""

from dataclasses import dataclass

from components.node import files, packages
from components.node.artifacts import whole_sums, write_sums
from components.node.failure import Failure
from components.node.log import note
from components.node.packages import architecture, os_release
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.containers.enroot_pyxis.enroot import CONTAINERS, SHARED, FilesValues, place_copy, work_folder

PLUGIN = "/usr/local/lib/tailrack/spank_pyxis.so"
# Slurm's TaskProlog cannot start inside a container without it (templates/slurmstepd.c).
LAUNCHER = "/usr/local/lib/tailrack/slurmstepd"
DROP_IN = "/etc/systemd/system/slurmd.service.d/tailrack-containers.conf"
_NAMES = _PLUGIN_NAME, _LAUNCHER_NAME = "spank_pyxis.so", "slurmstepd"
_RESTART_SECONDS = 60


@dataclass(frozen=True)
class PluginValues(FilesValues):
    """The sources of the plugin and the launcher.

    enroot_pyxis_pyxis      Pyxis' version
    enroot_pyxis_launcher   C source of the launcher
    slurm_release           the Slurm release that the config sets; empty for the distribution's
    """

    enroot_pyxis_pyxis: str
    enroot_pyxis_launcher: str
    slurm_release: str


def plugin_kind(values: PluginValues) -> str:
    """Return the build key of a plugin; another distribution or Slurm rejects it.

    The package has Slurm's version, because Slurm's commands may not work before there is a controller.
    """
    slurm = f"smd-{values.slurm_release}" if values.slurm_release else ""
    slurm = slurm or run("dpkg-query", "-W", "-f=${source:Upstream-Version}", "slurm-client").strip()
    system = os_release()
    distribution = f"{system['ID']}-{system.get('VERSION_ID') or 'rolling'}"
    return f"{distribution}-{architecture()}-slurm-{slurm}-pyxis-{values.enroot_pyxis_pyxis}"


def compile_plugin(step: Step, values: PluginValues, target: str) -> None:
    """Compile Pyxis and the launcher for this machine into a folder."""
    packages.ensure(step.host, "gcc", "libc6-dev", "make")
    if not values.slurm_release:
        packages.ensure(step.host, "libslurm-dev")
    with work_folder() as folder:
        archive, *_ = values.take(values.ending_in("[.]tar[.]gz"), folder)
        source = files.on_disk(folder)
        run("tar", "-xzf", archive, "-C", source, "--strip-components=1", "--no-same-owner")
        if not attempt("make", "-s", "-C", source).ok:
            raise Failure(
                f"Pyxis {values.enroot_pyxis_pyxis} does not compile with this machine's Slurm",
                "see the error above; does libslurm-dev have slurmd's version? ('apt-cache policy slurmd libslurm-dev' "
                f"on {step.host})",
            )
        files.write(f"{folder}/{_LAUNCHER_NAME}.c", values.enroot_pyxis_launcher)
        program = f"{source}/{_LAUNCHER_NAME}"
        if not attempt("gcc", "-O2", "-static", "-o", program, f"{program}.c").ok:
            raise Failure("slurmstepd's launcher does not compile", "see the error above")
        for name in _NAMES:
            place_copy(f"{source}/{name}", f"{target}/{name}", 0o755)
        write_sums(target, {name: files.sha256(f"{target}/{name}") for name in _NAMES})


def has_plugin(folder: str) -> bool:
    """Return whether a folder has a complete plugin and launcher that root owns."""
    return whole_sums(folder).keys() == {*_NAMES}


def ensure_plugin(step: Step, values: PluginValues, kind: str) -> None:
    """Install the plugin and the launcher of a kind."""
    source = f"{values.share_mount}/{SHARED}/pyxis/{kind}"
    if not has_plugin(source):
        note(f"the share has no Pyxis for {kind}; compiling it here")
        source = f"{CONTAINERS}/pyxis/{kind}"
        if not has_plugin(source):
            compile_plugin(step, values, source)
    sums = whole_sums(source)
    for name, path in ((_LAUNCHER_NAME, LAUNCHER), (_PLUGIN_NAME, PLUGIN)):
        if files.sha256(path) != sums[name]:
            place_copy(files.on_disk(f"{source}/{name}"), path, 0o755)
            note(f"installed {path}")
    files.write(f"{CONTAINERS}/plugin", sums[_PLUGIN_NAME])


def ensure_launcher(step: Step) -> None:
    """Make slurmd use the launcher, and restart a running one; its jobs continue."""
    if files.write(DROP_IN, f'[Service]\nEnvironment="TAILRACK_SLURMD_OPTIONS=-d {LAUNCHER}"'):
        run("systemctl", "daemon-reload")
        if not attempt("systemctl", "try-restart", "slurmd", limit=_RESTART_SECONDS).ok:
            raise Failure("slurmd does not start", f"see 'journalctl -u slurmd' on {step.host}, then run up again")
