"""Role enroot_pyxis: what its settings take and refuse, what steps are given of them, and where the log-ins go."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.roles.containers.enroot_pyxis.settings import FILES, FILES_ARM, MOST_BYTES, SUMS, UPSTREAM
from components.roles.order import roles
from stacks.config import ConfigError, StackConfig, parse
from tests.unit.configs import LAB, refusal
from tests.unit.recorded import Recorded, record_cluster

PASSWORD = "registry-password-nobody-may-see"
SUM = "0123456789abcdef" * 4
OF_UPSTREAM = dict.fromkeys(FILES, SUM)
REGISTRY = {"host": "registry.example:5000", "user": "$oauthtoken", "password": PASSWORD}
IMAGES = [
    {"name": "pytorch", "source": "$oauthtoken@registry.example:5000#nvidia/pytorch:25.08-py3", "where": ["cloud-a"]},
    {"name": "mine", "source": "/export/mine.sqsh", "where": []},
    {"name": "plain", "source": "ubuntu:24.04"},
]


@pytest.fixture(scope="module", autouse=True)
def no_folder_in_the_environment() -> Iterator[None]:
    """Whoever runs the tests may have one for the lab."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TAILRACK_ARTIFACTS", raising=False)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of one's own that holds together."""
    for number, file in enumerate(FILES):
        (tmp_path / file).write_bytes(f"content {number}".encode())
    write_sums(tmp_path)
    return tmp_path


def write_sums(folder: Path) -> None:
    lines = [f"{hashlib.sha256((folder / file).read_bytes()).hexdigest()}  {file}\n" for file in FILES]
    (folder / SUMS).write_text("".join(lines))


def config(containers: Mapping[str, object], secret: bool = True) -> StackConfig:
    keys = frozenset({"containers"} if secret else ())
    return parse({**LAB, "containers": dict(containers)}, base_dir=Path("/nonexistent"), secret_keys=keys)


def problems(containers: Mapping[str, object], secret: bool = True) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        config(containers, secret)
    said: dict[str, str] = {}
    for found in caught.value.problems:
        path = found.path.removeprefix("tailrack:containers")
        said[path] = f"{said.get(path, '')}\n{found.text}"
    return said


def header(containers: Mapping[str, object]) -> Mapping[str, Any]:
    (role,) = [role for role in roles(config(containers)) if role.name == "enroot_pyxis"]
    return role.values


@pytest.fixture(scope="module")
def stack() -> Recorded:
    """A lab whose containers come from upstream, with a log-in and three images."""
    containers = {"checksums": OF_UPSTREAM, "registries": [REGISTRY], "images": IMAGES}
    return record_cluster(config(containers))


def test_the_log_in_is_in_the_services_step_alone_and_secret_there(stack: Recorded) -> None:
    assert [step.name for step in stack.remote if PASSWORD in step.inputs["stdin"]] == ["head-services"]
    assert "stdin" in stack["head-services"].secret_paths
    assert [resource.name for resource in stack.resources if PASSWORD in resource.in_plain_state] == []
    assert PASSWORD not in json.dumps(stack.outputs)
    assert stack.header("head-services")["enroot_pyxis_credentials"] == (
        f"machine registry.example login $oauthtoken password {PASSWORD}\n"
    )


def test_the_config_accepts_named_and_complete_packages_of_another_architecture() -> None:
    both = dict.fromkeys((*FILES, *FILES_ARM), SUM)
    found = {line[0] for line in header({"checksums": both})["enroot_pyxis_artifacts"]}
    assert found == {*FILES, *FILES_ARM}
    alone = dict.fromkeys((*FILES_ARM, FILES[2]), SUM)
    assert {line[0] for line in header({"checksums": alone})["enroot_pyxis_artifacts"]} == alone.keys()
    half = {**OF_UPSTREAM, FILES_ARM[0]: SUM}
    assert f"{FILES_ARM[1]} is missing" in problems({"checksums": half})[".checksums"]


def test_a_folder_that_does_not_hold_together_is_refused(folder: Path) -> None:
    found = problems({"artifacts": str(folder), "checksums": {FILES[0]: SUM}})
    assert "differs from the one in the folder's SHA256SUMS" in found[".checksums"]
    for name, content, said in (
        (SUMS, None, f"has no readable {SUMS}"),
        (SUMS, b"\xff\xfe", f"has no readable {SUMS}"),
        (SUMS, f"{SUM}  {FILES[0]}\n".encode(), "that does not match its"),
        (SUMS, b"nothing of use\n", f"without {FILES[0]}"),
        (FILES[1], None, f"has no readable {FILES[1]}"),
        (FILES[2], b"another", f"has a {FILES[2]} that does not match"),
        (FILES[2], bytes(MOST_BYTES + 1), f"of more than {MOST_BYTES} bytes"),
    ):
        path, before = folder / name, (folder / name).read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert said in problems({"artifacts": str(folder)}, secret=False)[".artifacts"], said
        path.write_bytes(before)


def test_the_environments_folder_replaces_upstream_by_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACK_ARTIFACTS", str(folder))
    assert config({}).containers is not None
    named = config({"artifacts": UPSTREAM, "checksums": OF_UPSTREAM}).containers
    assert named is not None
    assert named.artifacts == UPSTREAM
    (folder / FILES[0]).unlink()
    assert "the folder of TAILRACK_ARTIFACTS" in problems({})[".artifacts"]


BAD = yaml.safe_load((Path(__file__).parents[3] / "fixtures/bad-containers.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("bad", "path", "said"), BAD, ids=[f"{number}-{case[1]}" for number, case in enumerate(BAD)])
def test_a_hostile_or_mistaken_value_is_refused_by_its_key(bad: Mapping[str, object], path: str, said: str) -> None:
    # In plain view, so that the text is the whole of it; but a password is never shown.
    found = problems({"checksums": OF_UPSTREAM, **bad}, secret=False)
    assert said in found[path], found
    assert PASSWORD not in str(found)


def test_local_containers_on_the_share_are_refused() -> None:
    containers = {"checksums": OF_UPSTREAM, "local": "/srv/shared/x"}
    assert "is on the share" in refusal({"storage": {"path": "/srv/shared"}, "containers": containers})


def test_the_source_of_an_image_has_the_format_of_container_image_or_dockers() -> None:
    kept = ("ubuntu", "ubuntu:24.04", "nvcr.io#nvidia/pytorch:25.08-py3", "registry.example:5000#a/b/c")
    digest = f"ghcr.io#owner/name@sha256:{SUM}"
    for written, taken in {
        **{source: source for source in (*kept, digest, "nvidia/cuda:12.8.0-base")},
        "nvcr.io/nvidia/pytorch:25.08-py3": "nvcr.io#nvidia/pytorch:25.08-py3",
        "localhost:5000/a:1": "localhost:5000#a:1",
        "localhost/a": "localhost#a",
        "docker.io/library/ubuntu:24.04": "library/ubuntu:24.04",
        digest.replace("#", "/"): digest,
    }.items():
        said = {"checksums": OF_UPSTREAM, "images": [{"name": "a", "source": written}]}
        made = parse({**LAB, "containers": said, "validation": {"nccl": {"image": written}}}, base_dir=Path())
        assert made.containers is not None
        assert made.containers.images[0].source == made.validation.nccl.image == taken, written
    file = config({"checksums": OF_UPSTREAM, "images": [{"name": "a", "source": "/export/images/mine.sqsh"}]})
    assert file.containers is not None
    assert file.containers.images[0].source == "/export/images/mine.sqsh"
