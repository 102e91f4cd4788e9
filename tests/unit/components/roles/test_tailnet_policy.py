"""What the tailnet's policy has to hold is made from the ports of the roles; what one in force lacks is found."""

import json
import re
from pathlib import Path
from typing import Any

from components.roles.network.tailnet.policy import Pods, lacking, opens_all, policy, ports
from components.roles.order import roles
from stacks.config import parse
from tests.unit.configs import HOSTS

TAG = "tag:cluster"
WANTED = ("22", "2049", "6816-6819")
OWNED: dict[str, Any] = {"tagOwners": {TAG: []}}


def grant(*ip: str, src: str = TAG, dst: str = TAG, **more: Any) -> dict[str, Any]:
    return {"src": [src], "dst": [dst], "ip": [*ip], **more}


def in_force(*grants: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**OWNED, "grants": [*grants], **more}


def test_the_policy_in_the_docs_has_the_ports_that_roles_serve_and_none_that_is_kept_closed(key_folder: Path) -> None:
    made = roles(parse(HOSTS, base_dir=key_folder, secret_keys=frozenset({"tailnet"})))
    assert ports(made) == ("22", "2049", "6816-6819", "60001-60999", "1024-65535")
    assert {port for role in made for port in role.ports if port not in role.serves} == {"111", "20048"}
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text(encoding="utf-8")
    block, relay = map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    assert block == policy(TAG, ports(made))
    assert [*block["grants"], relay] == policy(TAG, ports(made), relay=True)["grants"]


def test_a_policy_that_is_made_lacks_nothing_and_says_so_in_its_own_tests() -> None:
    for whole in (False, True):
        made = policy(TAG, WANTED, whole)
        assert lacking(made, TAG, WANTED) == "", whole
        (test,) = made["tests"]
        assert test["accept"] == [f"{TAG}:22", f"{TAG}:2049", f"{TAG}:6816"]
        assert ("deny" in test) is whole


POD = "tag:cluster-pod"


def with_pods(*more: dict[str, Any]) -> dict[str, Any]:
    made = policy(TAG, WANTED, pods=Pods.ALONE)
    return {**made, "grants": [*made["grants"], *more]}


def test_pods_reach_slurmctld_and_srun_and_nothing_else_of_the_cluster() -> None:
    made = policy(TAG, WANTED, pods=Pods.ALONE)
    assert lacking(made, TAG, WANTED, pods=Pods.ALONE) == ""
    from_pods = [rule for rule in made["grants"] if POD in rule["src"]]
    assert from_pods == [{"src": [POD], "dst": [TAG], "ip": ["tcp:6817", "tcp:60001-60999"]}]
    to_pods = [rule for rule in made["grants"] if POD in rule["dst"]]
    assert to_pods == [{"src": [TAG], "dst": [POD], "ip": ["tcp:6815", "tcp:6818", "tcp:60001-60999"]}]
    closed = (22, 2049, 5000, 6814, 6816, 6818, 6819, 9090, 9100)
    assert made["tests"][1]["deny"] == [f"{TAG}:{port}" for port in closed]


def test_pods_reach_each_other_only_for_jobs_over_several_of_them_and_the_docs_have_these_rules() -> None:
    made, alone = policy(TAG, WANTED, pods=Pods.TOGETHER), policy(TAG, WANTED, pods=Pods.ALONE)
    between = {"src": [POD], "dst": [POD], "ip": ["tcp:1024-65535"]}
    assert made["grants"] == [*alone["grants"], between]
    assert lacking(made, TAG, WANTED, pods=Pods.TOGETHER) == ""
    reason = lacking(alone, TAG, WANTED, pods=Pods.TOGETHER)
    assert f"no rule lets {POD} reach itself on tcp 1024-65535" in reason
    page = (Path(__file__).parents[4] / "docs" / "pods.md").read_text(encoding="utf-8")
    assert f"`{json.dumps(between)}`" in page
    (block,) = map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    assert block["grants"] == alone["grants"][len(policy(TAG, WANTED)["grants"]) :]
    assert block["tagOwners"] == {POD: alone["tagOwners"][POD]}


def test_a_policy_that_opens_more_to_pods_is_refused_with_the_ports() -> None:
    for wide in (
        grant("*", src="*", dst="*"),
        grant("tcp:1-2048", src=POD),
        grant("2049", src="autogroup:tagged"),
        grant("6816-6819", src=POD, dst="100.64.0.0/10"),
        *(grant(f"tcp:{port}", src=POD) for port in (6814, 6816, 6819, 5000, 9090, 9100)),
        grant("*", src=POD, dst="100.64.0.1"),
        grant("*", src=POD, dst="100.96.0.0/11"),
        grant("*", src="100.64.0.0-100.100.0.0", dst="fd7a:115c:a1e0::1"),
        grant("*", src=POD, dst="head"),
        grant("*", src=POD, dst="unknown"),
        grant("tcp:words", src=POD),
        grant("22", src=POD, via=["tag:x"]),
    ):
        reason = lacking(with_pods(wide) | {"hosts": {"head": "100.64.0.1"}}, TAG, WANTED, pods=Pods.ALONE)
        assert f"a rule of its grants lets, or may let, {POD} reach {TAG} on tcp" in reason, wide
        assert f"name {TAG} in that rule's src" in reason, wide
        assert lacking(with_pods(wide), TAG, WANTED) == "", wide


def test_the_policy_check_judges_every_section_and_the_rules_of_other_machines() -> None:
    open_to_pods: list[dict[str, Any]] = [
        {"ssh": [{"action": "check", "src": [POD], "dst": [TAG], "users": ["root"]}]},
        {"acls": [{"action": "accept", "src": [POD], "dst": ["100.64.0.1:6814"]}]},
    ]
    for section in open_to_pods:
        assert f"a rule of its {next(iter(section))} lets" in lacking(with_pods() | section, TAG, WANTED, Pods.ALONE)
    others = (
        grant("*", src="group:ops"),
        grant("*", src="ada@example.org"),
        grant("*", src="autogroup:member"),
        grant("*", src=POD, dst="10.0.0.0/8"),
        grant("*", src=POD, dst="printer"),
        grant("*", src="tag:other"),
        grant("udp:*", "icmp:*", src=POD),
        grant("tcp:60001-60999", "tcp:6817", src=POD),
    )
    hosts = {"hosts": {"printer": "192.0.2.7"}}
    assert lacking(with_pods(*others) | hosts, TAG, WANTED, Pods.ALONE) == ""


def test_a_policy_that_lets_the_cluster_work_lacks_nothing() -> None:
    for found in (
        in_force(grant("*")),
        in_force(grant("tcp:*", src="*", dst="*")),
        in_force(grant("22", "tcp:2049", "6:6816-6819")),
        in_force(grant("tcp:1-3000", src="autogroup:tagged"), grant("tcp:3001-65535", src="100.64.0.0/10")),
        in_force(grant("tcp:20-2048"), grant("tcp:2049-6817"), grant("tcp:6818-6819")),
        in_force(grant("*", src="autogroup:danger-all")),
        {**OWNED, "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]},
        {**OWNED, "acls": [{"action": "accept", "users": [TAG], "ports": [f"{TAG}:22,2049,6816-6819"]}]},
        {**OWNED, "acls": [{"action": "accept", "src": [TAG], "proto": "tcp", "dst": ["autogroup:tagged:*"]}]},
        OWNED,  # without rules everything is let through
    ):
        assert lacking(found, TAG, WANTED) == "", found


def test_all_that_is_missing_is_named_with_the_grant_to_add() -> None:
    for found in (
        in_force(),
        in_force(grant("*", src="group:ops")),
        in_force(grant("*", dst="tag:other")),
        in_force(grant("*", dst="autogroup:danger-all")),
        in_force(grant("udp:*")),
        in_force(grant("*", src="100.64.0.0/12")),
        in_force(grant("*", srcPosture=["posture:x"])),
        in_force(grant("*", via=["tag:relay"])),
        in_force({"src": [TAG], "dst": [TAG], "app": {}}),
        {**OWNED, "acls": []},
        {**OWNED, "acls": [{"action": "accept", "src": [TAG], "proto": "udp", "dst": [f"{TAG}:*"]}]},
        {**OWNED, "grants": "none", "acls": [7, {"action": "accept"}]},
    ):
        said = lacking(found, TAG, WANTED)
        assert said.startswith(f"no rule lets {TAG} reach itself on tcp 22, 2049, 6816-6819; add to its grants "), found
        added = json.loads(said.rpartition("grants ")[2])
        assert lacking({**OWNED, "grants": [added]}, TAG, WANTED) == "", found


def test_a_policy_that_lets_the_cluster_reach_everybodys_devices_is_known_for_it() -> None:
    for found, opens in (
        ({}, True),
        (in_force(grant("*", src="*", dst="*")), True),
        (in_force(grant("tcp:22", src="autogroup:tagged", dst="*")), True),
        ({**OWNED, "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]}, True),
        (in_force(grant("*")), False),
        (in_force(grant("*", src="autogroup:member", dst="*")), False),
        ({**OWNED, "acls": [{"action": "accept", "src": [TAG], "dst": [f"{TAG}:*"]}]}, False),
    ):
        assert opens_all(found, TAG) == opens, found
