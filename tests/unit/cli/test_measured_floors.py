"""`make floors`: only sound measurements become floors, and the user's file stays as it was but for them."""

from pathlib import Path
from typing import Any

import pytest

from cli.measured_floors import floors, write
from cli.pulumi.workspace import CliError
from cli.stack_config.stack_file import read_stack_file

SOURCE = "measured floors of 2026-11-21"


def result(busbw: float | None = 10.0, **changes: Any) -> dict[str, Any]:
    sound: dict[str, Any] = {"verdict": "PASS", "reason": "", "wrong": 0, "left_out": [], "suspects": []}
    spread = {"runs": [busbw, 10.2, 9.9], "relative": 0.03}
    return {**sound, "busbw_gb_per_s": busbw, "spread": spread, **changes}


def section(by_scope: dict[str, float], training: float | None = None) -> dict[str, Any]:
    trained = {} if training is None else {"training": {"floor_images_per_second": training}}
    return {"floors_gb_per_s": by_scope, **trained}


def outputs(**scopes: dict[str, Any]) -> dict[str, Any]:
    return {"validation": scopes}


def test_a_floor_is_nine_tenths_of_the_lowest_run_and_nodes_alone_have_that_of_the_slowest():
    assert floors(outputs(rack=result())) == section({"rack": 8.91})
    alone = {"a": result(365.0, spread=None), "b": result(344.0, spread=None)}
    assert floors({"validation": {"node": alone, "rack": result()}}) == section({"rack": 8.91, "node": 309.0})


def trained(**changes: Any) -> dict[str, Any]:
    sound = {"verdict": "UNJUDGED", "left_out": [], "images_per_second": 12_000.0, "ranks": 2}
    return {**sound, "spread": {"runs": [12_100.0, 12_000.0, 11_000.0], "relative": 0.09}, **changes}


@pytest.mark.parametrize(
    ("scope", "changes", "why"),
    [
        ("rack", {"verdict": "FAIL"}, "its verdict is FAIL"),
        ("rack", {"verdict": "INCONCLUSIVE"}, "INCONCLUSIVE"),
        ("rack", {"verdict": "BUSY", "busbw_gb_per_s": None}, "BUSY"),
        ("rack", {"busbw_gb_per_s": None}, "no bandwidth"),
        ("rack", {"wrong": None}, "correct data"),
        ("rack", {"left_out": ["b1"]}, "b1 did not take part"),
        ("rack", {"suspects": [{"nodes": ["a", "b"]}]}, "a and b held the others back"),
        ("rack", {"verdict": "UNSTABLE"}, "its verdict is UNSTABLE"),
        ("training", {"verdict": "FAIL"}, "its verdict is FAIL"),
        ("training", {"verdict": "UNSTABLE"}, "its verdict is UNSTABLE"),
        ("training", {"left_out": ["b1"]}, "b1 did not take part"),
    ],
)
def test_one_measurement_that_is_not_sound_keeps_all_floors_from_being_written(scope, changes, why):
    measured = {**outputs(office=result(), rack=result()), "training": trained()}
    (measured if scope == "training" else measured["validation"])[scope] |= changes
    with pytest.raises(CliError, match=rf"no floors are written[\s\S]*{scope}: .*{why}") as refused:
        floors(measured)
    assert "office" not in str(refused.value)


@pytest.mark.parametrize(("spread", "floor"), [(trained()["spread"], 4950.0), (None, 5400.0)])
def test_a_training_also_gives_a_floor_for_each_gpu(spread, floor):
    found = floors({**outputs(rack=result()), "training": trained(spread=spread)})
    assert found == section({"rack": 8.91}, floor)


def test_no_measurement_gives_no_floors():
    with pytest.raises(CliError, match="run make up first"):
        floors(outputs())


PLAIN = """\
# my cluster
config:
  tailrack:cluster: {name: lab}  # keep
  # the measurement
  tailrack:validation:
    max_bytes: 8M # largest
    floors_gb_per_s:
      cloud-a: 0.002   # from the vendor
      # between the clouds
      cross-site: 0.0002

  # who works here
  tailrack:users: [{name: ada, uid: 6001}]
encryptionsalt: v1:abc
"""


def written(tmp_path: Path, text: str, values: dict[str, float], training: float | None = None) -> str:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(text)
    write(path, section(values, training), SOURCE)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    return path.read_text()


def test_new_values_take_the_place_of_old_ones_and_every_comment_stays(tmp_path):
    text = written(tmp_path, PLAIN, {"cloud-a": 0.5, "cloud-b": 0.25})
    last, new = "      cross-site: 0.0002\n", f"      cloud-b: 0.25\n    floors_from: {SOURCE}\n"
    assert text == PLAIN.replace("cloud-a: 0.002 ", "cloud-a: 0.5 ").replace(last, last + new)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("training: {}", "training: {floor_images_per_second: 4950.0}"),
        ("training: {steps: 9} # quick", "training: {steps: 9, floor_images_per_second: 4950.0} # quick"),
        (
            "training:\n      floor_images_per_second: 7 # old\n      steps: 9",
            "training:\n      floor_images_per_second: 4950.0 # old\n      steps: 9",
        ),
    ],
)
def test_the_floor_of_training_lies_among_its_other_keys(tmp_path, before, after):
    text = f"config:\n  tailrack:validation:\n    floors_gb_per_s: {{rack: 1}}\n    {before}\n"
    expected = text.replace("rack: 1", "rack: 8.91").replace(before, after) + f"    floors_from: {SOURCE}\n"
    assert written(tmp_path, text, {"rack": 8.91}, training=4950.0) == expected


@pytest.mark.parametrize(
    "text",
    [
        "config:\n  tailrack:cluster: {name: lab}\n",
        "config:\n  tailrack:cluster: {name: lab}",
        "config:\n  tailrack:validation: {max_bytes: 8M}\n# end\n",
        "config:\n  tailrack:validation: {max_bytes: 8M, floors_gb_per_s: {a: 1, }, }\n",
        "config:\n  tailrack:validation: {floors_gb_per_s: {}}\n",
        "config:\n  tailrack:validation:\n    floors_gb_per_s:\n    max_bytes: 8M\n",
        "config:\n    tailrack:validation:\n        rerun: |\n          a\n          b\n\n    tailrack:x: 1\n",
        "config: {tailrack:cluster: {name: lab}}\n",
        "config:\n",
        '"config":\n  "tailrack:validation":\n    "floors_gb_per_s": {"a": 1}\n    floors_from: "2020"\n',
        "config:\r\n  tailrack:validation:\r\n    max_bytes: 8M\r\n  tailrack:x: y\r\n",
        "config:\n  tailrack:validation:\n    floors_gb_per_s: {'cross-site': 2} # why\n  tailrack:ü: ö\n",
    ],
)
def test_any_file_layout_keeps_its_meaning_and_gets_the_floors(tmp_path, text):
    (tmp_path / "old.yaml").write_text(text)
    before = read_stack_file(tmp_path / "old.yaml")["config"]
    (tmp_path / "old.yaml").unlink()
    written(tmp_path, text, {"a": 0.5, "cross-site": 0.25})
    after = read_stack_file(tmp_path / "Pulumi.x.yaml")["config"]
    section = after.pop("tailrack:validation")
    old = before.pop("tailrack:validation", {})
    assert section.pop("floors_gb_per_s") == {"a": 0.5, "cross-site": 0.25}
    assert section.pop("floors_from") == SOURCE
    assert (after, section) == (before, {key: old[key] for key in old if not key.startswith("floors")})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x: &v {max_bytes: 8M}\nconfig:\n  tailrack:validation: *v\n",
        "config:\n  tailrack:validation: {max_bytes: 8M # largest\n  }\n",
        "config:\n  tailrack:validation: []\n",
    ],
)
def test_a_file_that_cannot_be_added_to_safely_stays_and_the_lines_to_paste_are_said(tmp_path, text):
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(text)
    with pytest.raises(CliError, match="write these lines") as refused:
        write(path, section({"rack": 8.91}), SOURCE)
    assert "    rack: 8.91\n" in str(refused.value)
    assert path.read_text() == text
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
