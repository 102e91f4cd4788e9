"""The sections `datasets` and `staging`: each bad value is one clear error."""

from pathlib import Path
from typing import Any

import pytest

from components.roles.cluster_settings import ClusterSettings
from components.roles.storage.datasets.role import role
from components.settings.serialize import to_plain
from stacks.config import ConfigError, parse
from tests.hub import COMMIT
from tests.unit.configs import LAB

SECRET = "secret-key-nobody-may-see"
S3 = {"name": "imagenet", "source": "s3://bucket/imagenet", "access_key": "AKIA1", "secret_key": SECRET}
HIDDEN = frozenset({"datasets"})


def read(*datasets: dict[str, Any], **more: Any) -> Any:
    hidden = HIDDEN if any(word in str(datasets) for word in ("secret_key", "token'")) else frozenset()
    return parse({**LAB, "datasets": [*datasets], **more}, base_dir=Path(), secret_keys=hidden)


def problem(*datasets: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ConfigError) as error:
        read(*datasets, **more)
    (only,) = error.value.problems
    assert SECRET not in str(error.value)
    return str(only)


def test_each_kind_of_source_is_accepted() -> None:
    for source in (
        "s3://bucket",
        "s3://bucket/a/b.c/",
        "https://host.example/x.tar",
        "https://host.example:8443/a/",
        f"hf://datasets/ada/pictures@{COMMIT}",
        f"hf://ada/model-7B.v2@{COMMIT}/weights/",
        "/shared/data/imagenet",
        "/export/shared/data",
    ):
        assert read({"name": "one", "source": source}).datasets[0].source == source.rstrip("/") or source.endswith(
            "/"
        ), source


def test_a_bad_value_is_one_error_that_names_its_key() -> None:
    for dataset, path, part in (
        ({"source": "http://host/x"}, "source", "neither s3://BUCKET/FOLDER"),
        ({"source": "s3://bucket/../x"}, "source", "neither s3://BUCKET/FOLDER"),
        ({"source": "https://host/x?token=1"}, "source", "neither s3://BUCKET/FOLDER"),
        ({"source": "https://user:pw@host/x"}, "source", "neither s3://BUCKET/FOLDER"),
        ({"source": "hf://datasets/ada/pictures"}, "source", "is not a commit of a repository on Hugging Face"),
        ({"source": "hf://datasets/ada/pictures@main"}, "source", "is not a commit of a repository"),
        ({"source": f"hf://datasets/../pictures@{COMMIT}"}, "source", "is not a commit of a repository"),
        ({"source": f"hf://datasets/ada/pictures@{COMMIT}/../x"}, "source", "is not a commit of a repository"),
        ({"token": "hf_two\nlines"}, "token", "is empty, or contains blanks"),
        ({"source": "/shared/a b"}, "source", "neither s3://BUCKET/FOLDER"),
        ({"source": "/data/imagenet"}, "source", "is not a folder in the share (/export/shared, /shared)"),
        ({"source": "/shared"}, "source", "is not a folder in the share"),
        ({"name": "../x"}, "name", "is not a name"),
        ({"name": "Image_Net"}, "name", "is not a name"),
        ({"sites": ["rack"]}, "sites[0]", "is not a site of this stack"),
        ({"folder": "/shared/sets"}, "folder", "system"),
        ({"folder": "/etc"}, "folder", "may be a folder of the system"),
        ({"max_gb": 0}, "max_gb", "a whole number from 1"),
        ({"endpoint": "http://host"}, "endpoint", "is not https://HOST"),
        ({"endpoint": "https://host/path"}, "endpoint", "is not https://HOST"),
        ({"region": "eu central"}, "region", "a region's name"),
        ({"access_key": "a b"}, "access_key", "the id of an access key"),
        ({"secret_key": "two\nlines"}, "secret_key", "is empty, or contains blanks"),
        ({"unknown": 1}, "unknown", "unknown key"),
    ):
        plain = {"name": "imagenet", "source": "s3://bucket/imagenet"}
        text = problem({**(S3 if path.endswith("_key") else plain), **dataset})
        assert text.startswith(f"tailrack:datasets[0].{path}: "), dataset
        assert part in text, dataset


def test_two_names_half_a_key_and_keys_or_folders_that_do_not_fit_are_refused() -> None:
    share, half = (
        {"name": "one", "source": "/shared/x"},
        {key: value for key, value in S3.items() if key != "access_key"},
    )
    assert "is the name of two data sets" in problem(S3, {**share, "name": "imagenet"})
    assert "is set without access_key" in problem(half)
    for key, value in {"endpoint": "https://host", "region": "eu", "access_key": "AKIA1", "token": "hf_x"}.items():
        assert "it would have no effect" in problem({**share, key: value}), key
    assert "remove it, or write source: hf://" in problem({**share, "token": "hf_x"})
    storage = {"path": "/data", "mount": "/shared"}
    assert "is on the share" in problem({**share, "folder": "/data/x"}, storage=storage)


def test_the_secret_is_in_no_value_and_in_no_export() -> None:
    settings: ClusterSettings = read(S3)
    made = role(settings)
    assert SECRET in made.secrets["datasets_keys"]
    assert SECRET not in str(made.values) + str(made.files)
    assert SECRET not in str(to_plain(settings, ClusterSettings))
    gated = {"name": "gated", "source": f"hf://datasets/ada/pictures@{COMMIT}", "token": SECRET}
    assert SECRET in role(read(gated)).secrets["datasets_keys"]
