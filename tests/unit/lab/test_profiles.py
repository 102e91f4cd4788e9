"""Lab machines that look like real ones: what each has of its own, and which image it is made from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from lab import binaries, debian, images
from lab.distributions import OTHERS, Distribution
from lab.errors import LabError
from lab.identity import fabric_name, network_name
from lab.profiles import machine
from lab.profiles.machine import BUSY, FOLDER, PROFILES, Like, host_name, interface, login, own_files
from lab.spec import NodeSpec, parse

ETH0 = interface("eth0", "10.1.2.0/24", "10.1.2.10", routed=True)
ETH1 = interface("eth1", "10.9.0.0/16", "10.9.0.11")
SEED = "/var/lib/cloud/seed/nocloud"


def test_an_interface_has_its_networks_prefix_and_a_routed_one_its_first_address_as_gateway() -> None:
    assert (ETH0.address, ETH0.gateway) == ("10.1.2.10/24", "10.1.2.1")
    assert (ETH1.address, ETH1.gateway) == ("10.9.0.11/16", None)


def test_only_a_plain_machine_keeps_its_lab_name() -> None:
    likes: tuple[Like, ...] = ("", *PROFILES)
    names = [host_name(like, "n1", "10.1.2.10") for like in likes]
    assert names == ["n1", "ip-10-1-2-10", "n1-server", "n1-desktop", *["n1"] * len(OTHERS), ""]
    logins = [login(like) for like in ("cloud", "desktop", "bookworm", "pod", "")]
    assert logins == ["ubuntu", "maria", "admin", "root", "admin"]


def test_a_cloud_machine_finds_its_name_and_both_interfaces_in_its_seed() -> None:
    files = own_files("cloud", "ip-10-1-2-10", [ETH0, ETH1])
    assert json.loads(files[f"{SEED}/meta-data"])["local-hostname"] == "ip-10-1-2-10"
    assert files[f"{SEED}/user-data"].startswith("#cloud-config\n")
    assert json.loads(files[f"{SEED}/network-config"]) == {
        "version": 2,
        "ethernets": {
            "eth0": {
                "addresses": ["10.1.2.10/24"],
                "routes": [{"to": "0.0.0.0/0", "via": "10.1.2.1"}],
                "nameservers": {"addresses": ["127.0.0.11"]},
            },
            "eth1": {"addresses": ["10.9.0.11/16"]},
        },
    }


def test_a_cloud_machine_is_busy_only_on_request() -> None:
    rested, busy = (own_files("cloud", "ip-10-1-2-10", [ETH0], busy=busy) for busy in (False, True))
    assert set(busy) - set(rested) == {BUSY}
    for file in ("apt-daily.service.conf", "cloud.cfg"):
        assert BUSY in (FOLDER / "cloud" / file).read_text()


def test_a_server_has_the_installers_interfaces_file() -> None:
    assert own_files("server", "n1-server", [ETH0]) == {
        "/etc/network/interfaces": "source /etc/network/interfaces.d/*\n\n"
        "auto lo\niface lo inet loopback\n\n"
        "allow-hotplug eth0\niface eth0 inet static\n\taddress 10.1.2.10/24\n\tgateway 10.1.2.1\n"
    }


def test_other_machines_have_no_files_of_their_own() -> None:
    assert own_files("", "n1", [ETH0]) == own_files("desktop", "n1-desktop", [ETH0]) == {}


def test_a_sites_second_network_has_a_name_that_no_site_can_take() -> None:
    assert fabric_name("x", "rack") == f"{network_name('x', 'rack')}.fabric"
    with pytest.raises(LabError, match="site"):
        parse(NodeSpec, '{"lab": "x", "state_dir": ".", "node": "a1", "site": "rack.fabric"}')


def test_a_profile_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(LabError, match=r"like: .*'cloud', 'server', .*'ubuntu-24\.04'"):
        parse(NodeSpec, '{"lab": "x", "state_dir": ".", "node": "a1", "site": "rack", "like": "mainframe"}')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the profiles' files, which the code under test then takes for the real ones."""
    shutil.copytree(machine.FOLDER, tmp_path / "profile")
    monkeypatch.setattr(machine, "FOLDER", tmp_path / "profile")
    return tmp_path / "profile"


def changed(before: images.Images) -> set[str]:
    """The profiles whose image is another one now."""
    after = images.tags().profiles
    return {like for like in PROFILES if after[like] != before.profiles[like]}


def test_a_change_of_one_profile_leaves_all_other_images_alone(folder: Path) -> None:
    before = images.tags()
    (folder / "cloud" / "cloud.cfg").write_text("")
    assert changed(before) == {"cloud"}
    assert (images.tags().node, images.tags().bare) == (before.node, before.bare)


def test_a_change_of_a_shared_file_changes_all_profiles(folder: Path) -> None:
    before = images.tags()
    (folder / "boot.sh").write_text("")
    assert changed(before) == {"cloud", "server", "desktop"}


def test_a_change_of_a_pods_start_leaves_the_images_of_machines_alone(folder: Path) -> None:
    before = images.tags()
    (folder / "pod" / "start.sh").write_text("")
    assert changed(before) == {"pod"}


def test_a_pod_is_built_on_the_distributions_base_with_the_labs_package_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[str, set[str], dict[str, str] | None]] = []

    def build(
        client: object, tag: str, context: Path, target: str = "", arguments: dict[str, str] | None = None
    ) -> None:
        built.append((tag, {file.name for file in context.iterdir()}, arguments))

    programs = {name: tmp_path / name for name in ("tailscale", "tailscaled", "unit", "defaults", "control")}
    for program in programs.values():
        program.touch()
    monkeypatch.setattr(images, "_exists", lambda client, tag: False)
    monkeypatch.setattr(images, "_build", build)
    monkeypatch.setattr(binaries, "ready", lambda cache: binaries.Binaries(**programs))
    monkeypatch.setattr(debian, "find_mirrors", lambda: debian.Mirrors("http://mirror", None))
    monkeypatch.setattr(debian, "ensure_base", lambda client, mirrors, cache: "base:1")
    pod = images.tags().profiles["pod"]
    images.ensure_images(cast("Any", None), [pod], tmp_path)
    assert built == [
        (pod, {"Dockerfile", "start.sh", "sources.list", "tailscale", "tailscaled"}, {"BASE": "base:1"}),
    ]


def test_another_taken_uid_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    before = images.tags()
    monkeypatch.setattr(machine, "CLASHING_UID", 7001)
    assert "server" in changed(before)


def packages_of(of: Distribution) -> dict[str, str]:
    """Images of packages, called after what is in them."""
    return {stage: f"{of.release}'s {stage}" for stage in ("system", "cluster", "helper")}


def test_a_profile_is_built_on_the_bare_image_and_another_distributions_machine_on_its_own_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[str, str]] = []

    def build(
        client: object, tag: str, context: Path, target: str = "", arguments: dict[str, str] | None = None
    ) -> None:
        assert (context / "Dockerfile").exists()
        built.append((tag, (arguments or {}).get("PACKAGES") or (arguments or {})["BASE"]))

    monkeypatch.setattr(images, "_exists", lambda client, tag: False)
    monkeypatch.setattr(images, "_build", build)
    monkeypatch.setattr(images, "install_packages", lambda _client, _cache, of: packages_of(of))
    programs = {name: tmp_path / name for name in ("tailscale", "tailscaled", "unit", "defaults", "control")}
    for program in programs.values():
        program.touch()
    monkeypatch.setattr(binaries, "build", lambda folder: binaries.Binaries(**programs))
    known = images.tags()
    images.ensure_images(cast("Any", None), [known.profiles["desktop"], known.profiles["forky"], known.node], tmp_path)
    assert built == [
        (known.profiles["forky"], "forky's system"),
        (known.node, "trixie's cluster"),
        (known.bare, "trixie's system"),
        (known.profiles["desktop"], known.bare),
    ]
