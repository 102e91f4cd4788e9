"""Role held_packages: by the real apt, on folders of its own, and by perl as needrestart reads settings."""

import re
import subprocess
from pathlib import Path

from components.roles.role import template
from tests.unit.shell import Shell, assert_ok, script_of

PINS = "/etc/apt/preferences.d/tailrack"
# Status, name, source, version, as dpkg-query is asked for them.
INSTALLED = """\
installed slurmd slurm-wlm 24.11.5-4
installed slurm-wlm-basic-plugins slurm-wlm 24.11.5-4
installed slurm-smd slurm-smd 25.11.7-1
config-files slurmctld slurm-wlm 22.05.8-4
installed munge munge 0.5.16-1
installed libmunge2 munge 0.5.16-1
installed tailscale tailscale 1.102.5
installed bash bash 5.2.37-2
installed linux-image-6.8.0-60-generic linux-signed 6.8.0-60.63
installed nvidia-utils-580-server nvidia-graphics-drivers-580-server 580.95.05-0ubuntu1
installed libnvidia-compute-580-server nvidia-graphics-drivers-580-server 580.95.05-0ubuntu1
installed nvidia-fabricmanager-580 fabric-manager-580 580.95.05-1
installed cuda-drivers nvidia-drivers 580.95.05-1
"""
PREBUILT = "installed linux-modules-nvidia-580-server-generic linux-restricted-modules 6.8.0-60.63+1\n"
SLURM = {"slurmd", "slurm-wlm-basic-plugins", "slurm-smd", "munge", "libmunge2", "tailscale"}
DRIVER = {"nvidia-utils-580-server", "libnvidia-compute-580-server", "nvidia-fabricmanager-580", "cuda-drivers"}
KERNEL = {"linux-image-6.8.0-60-generic", "linux-modules-nvidia-580-server-generic"}


def hold(shell: Shell, installed: str = INSTALLED, gpus: int = 0) -> dict[str, str]:
    """Run the phase; the version of each package that is held."""
    table = shell.write("installed", installed)
    shell.stub("dpkg-query", f'cat "{table}"')
    assert_ok(shell.step(script_of("held_packages", "machine"), {"node_gpu_count": gpus}))
    text = shell.path(PINS).read_text()
    return dict(re.findall(r"^Package: (\S+)\nPin: version (\S+)\nPin-Priority: 1000$", text, re.MULTILINE))


def test_the_step_holds_packages_and_the_driver(shell: Shell) -> None:
    for installed, gpus, held in (
        (INSTALLED, 0, SLURM),
        (INSTALLED, 8, SLURM | DRIVER),
        (INSTALLED + PREBUILT, 8, SLURM | DRIVER | KERNEL),
        (INSTALLED + PREBUILT, 0, SLURM),
    ):
        assert hold(shell, installed, gpus).keys() == held, gpus


def test_a_machine_that_leaves_holds_nothing_and_keeps_the_folders_that_others_have(shell: Shell) -> None:
    hold(shell)
    shell.write("etc/needrestart/conf.d/tailrack.conf", "")
    assert shell.step(script_of("held_packages", "leave"), {}).returncode == 0
    assert not shell.path(PINS).exists()
    assert not shell.path("/etc/needrestart").exists()
    hold(shell)
    shell.write("etc/needrestart/conf.d/tailrack.conf", "")
    own = shell.write("etc/needrestart/needrestart.conf", "")
    assert shell.step(script_of("held_packages", "leave"), {}).returncode == 0
    assert own.exists()
    assert not shell.path("/etc/needrestart/conf.d").exists()


STANZA = "Package: {}\nStatus: install ok installed\nArchitecture: all\nMaintainer: x\nVersion: {}\nDescription: x\n\n"


def upgraded(folder: Path, pins: str) -> set[str]:
    """Packages that the real apt would upgrade, of a machine whose sources have newer ones."""
    for name in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d", "repo"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    versions = {"slurmd": ("24.11.5-4", "24.11.7-1"), "munge": ("0.5.16-1", "0.5.17-1"), "bash": ("5.2-1", "5.3-1")}
    (folder / "status").write_text("".join(STANZA.format(name, old) for name, (old, _) in versions.items()))
    (folder / "repo/Packages").write_text(
        "".join(
            STANZA.format(name, new).replace("Status: install ok installed\n", f"Filename: ./{name}.deb\nSize: 1\n")
            for name, (_, new) in versions.items()
        )
    )
    (folder / "etc/sources.list").write_text(f"deb [trusted=yes] file:{folder}/repo ./\n")
    (folder / "etc/preferences.d/tailrack").write_text(pins)
    options = {
        "Dir::State": folder / "state", "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
        "Dir::Etc": folder / "etc", "Dir::Etc::sourceparts": "/dev/null", "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root", "Debug::NoLocking": 1,
    }  # fmt: skip
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", *words, "update"], check=True, capture_output=True)
    done = subprocess.run(["apt-get", *words, "-s", "dist-upgrade"], check=True, capture_output=True, text=True)
    return set(re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE))


def test_a_full_upgrade_skips_only_held_packages(shell: Shell, tmp_path: Path) -> None:
    assert upgraded(tmp_path / "apt", "") == {"slurmd", "munge", "bash"}
    hold(shell)
    assert upgraded(tmp_path / "apt", shell.path(PINS).read_text()) == {"bash"}


# As needrestart does (2.1 to 3.8): its own settings first, then conf.d by eval, then the first key that fits.
PERL = r"""our %nrconf = (override_rc => {qr(^dbus) => 0}); eval do { local $/; <STDIN> }; die $@ if $@;
for my $rc (@ARGV) { my $restart = 1;
  for my $re (sort keys %{$nrconf{override_rc}}) { next unless $rc =~ /$re/;
    $restart = $nrconf{override_rc}->{$re}; last }
  print "$rc " if $restart }"""


def test_needrestart_restarts_none_of_the_daemons_that_jobs_hang_on() -> None:
    kept = ["slurmd", "slurmctld", "slurmdbd", "munge", "tailscaled", "nvidia-persistenced", "nvidia-fabricmanager"]
    kept += ["tailrack-names", "nfs-server", "nfs-ganesha", "dbus"]
    others = ["cron", "ssh", "rsyslog"]
    words = ["perl", "-e", PERL, *(f"{name}.service" for name in [*kept, *others])]
    text = template("held_packages", "needrestart.conf") + "\n"
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{name}.service" for name in others]
