"""The whole program against mocks: which resources it makes, and which of them a change of the config touches."""

import json
import re
from typing import Any

import pulumi
import pytest

from cli.run_events import command_of
from components.measurement_jobs import plan
from components.steps.label import StepLabel
from tests.unit import recorded
from tests.unit.configs import RawConfig
from tests.unit.recorded import AUTHORITY, LEAVE_KEY, OWN_OUTPUTS, Build, certificate_of, public_key, tailnet_address

# The label in front: the step's name, its machine, its words for people.
LABEL = r": [a-z0-9-]+ [a-z0-9]+ '[A-Za-z0-9:, -]+'; "
COMMAND = re.compile(
    LABEL
    + r"""exec sh -c 'cd \.tailrack/scripts && \[ "\$\(sha256sum <(start-[0-9a-f]{8}\.sh)\)" = "[0-9a-f]{64}  -" \] """
    r"""\|\| \{ echo "~/\.tailrack/scripts/\1: not there, or not whole" >&2; exit 75; \}; """
    r"""exec sh \./\1 (up|down) [0-9a-f]{64} [0-9a-f]{64} [0-9]+'"""
)


@pytest.fixture
def config(request: pytest.FixtureRequest) -> RawConfig:
    """One of the example configs, by name."""
    raw: RawConfig = request.getfixturevalue(request.param)
    return raw


every_kind = pytest.mark.parametrize("config", ["lab_config", "hosts_config"], indirect=True)


def add_to_pool(raw: RawConfig, site: str) -> RawConfig:
    changed = next(each for each in raw["sites"] if each["name"] == site)
    changed["pools"][0]["count"] += 1
    return raw


@every_kind
def test_ps_shows_the_same_quiet_pinned_command_for_every_remote_step(build: Build, config: RawConfig) -> None:
    steps = build(config).remote
    assert len(steps) > 10
    keys = {"create", "update", "delete", "stdin", "logging", "addPreviousOutputInEnv", "connection", "triggers"}
    for step in steps:
        assert COMMAND.fullmatch(step.inputs["create"]), step.name
        assert step.inputs["create"].startswith(f": {step.name} ")
        undoes = step.inputs["create"].replace(".sh up ", ".sh down ")
        assert step.inputs.get("delete", undoes) == undoes
        assert (step.inputs["logging"], step.inputs["addPreviousOutputInEnv"]) == ("none", False), step.name
        assert step.inputs["connection"]["hostKey"].startswith("ssh-ed25519 "), step.name
        assert step.inputs.keys() <= keys, "no environment"


# A read while the engine writes the state may fail (stacks/read_outputs.py).
@every_kind
def test_the_outputs_of_the_last_run_are_read_before_anything_is_registered(build: Build, config: RawConfig) -> None:
    assert build(config).stacks_read == {OWN_OUTPUTS: []}


def test_only_the_head_node_undoes_its_own_and_a_members_steps(build: Build, lab_config: RawConfig) -> None:
    undone = {step.name for step in build(lab_config).remote if "delete" in step.inputs}
    assert undone == {"head-head", "a1-register", "b1-register"}


# What a change of the config touches.


def test_a_new_node_touches_itself_and_the_measurements_it_takes_part_in(build: Build, lab_config: RawConfig) -> None:
    before = build(lab_config)
    after = build(add_to_pool(lab_config, "cloud-b"))
    steps = {f"b2-{step}" for step in ("container", "node", "prepare", "register", "scripts")}
    assert after.differences(before) == {"b2", *steps, "validate-cloud-b", "validate-cross-site"}


def test_a_node_changes_no_input_of_the_head_node(build: Build, lab_config: RawConfig, hosts_config: RawConfig) -> None:
    before = build(lab_config)
    after = build(add_to_pool(lab_config, "cloud-b"))
    for step in ("head-prepare", "head-head", "head-services"):
        assert after[step].inputs == before[step].inputs
    before = build(hosts_config)
    hosts_config["sites"][0]["hosts"].pop()  # the only one of its GPU kind
    after = build(hosts_config)
    for step in ("door-prepare", "door-head", "door-services"):
        assert after[step].inputs == before[step].inputs


def test_a_slurm_setting_that_reaches_the_processes_of_jobs_is_measured(build: Build, lab_config: RawConfig) -> None:
    before = build(lab_config)
    after = build({**lab_config, "slurm": {"settings": {"PropagateResourceLimitsExcept": "NOFILE"}}})
    assert after.differences(before) == {"head-head"} | before.validations
    for name in before.validations:
        assert after[name].inputs["triggers"] != before[name].inputs["triggers"]


def test_a_changed_script_measures_nothing(
    build: Build, lab_config: RawConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build(lab_config)
    script = plan.script().with_texts({"driver": "another command"})
    monkeypatch.setattr(plan, "script", lambda: script)
    after = build(lab_config, answers={"nobody": {}})  # not the one that was built before
    assert after.differences(before) == {*before.validations, "head-scripts"}
    for name in before.validations:
        # The command provider runs `update` for a changed script, which says once more what is known.
        old, new = before[name].inputs, after[name].inputs
        assert {key for key in new if new[key] != old[key]} == {"create", "update"}
        assert new["update"] == new["create"].replace(".sh up ", ".sh recall ")


def test_a_busy_measurement_is_tried_again_by_the_next_run_and_then_stays(build: Build, lab_config: RawConfig) -> None:
    def after(verdict: str, retries: int) -> recorded.Recorded:
        scope = {"verdict": verdict, "retries": retries}
        last_run = {"outputs": {"validation": {"cloud-a": scope}}, "secretOutputNames": []}
        return build(lab_config, answers={OWN_OUTPUTS: last_run})

    first, busy, done = build(lab_config), after("BUSY", 0), after("PASS", 1)
    assert busy.differences(first) == {"validate-cloud-a"}
    assert busy["validate-cloud-a"].inputs["triggers"] != first["validate-cloud-a"].inputs["triggers"]
    assert busy.outputs["validation"]["cloud-a"]["retries"] == 1
    assert done.differences(busy) == set()
    assert after("BUSY", 1).differences(done) == {"validate-cloud-a"}
    assert after("FAIL", 0).differences(first) == set()


def test_a_floor_touches_nothing_and_still_judges(build: Build, lab_config: RawConfig) -> None:
    before = build(lab_config)
    lab_config["validation"]["floors_gb_per_s"]["cloud-a"] = 5000
    last_run = {"outputs": {"validation": before.outputs["validation"]}, "secretOutputNames": []}
    after = build(lab_config, answers={OWN_OUTPUTS: last_run})
    assert after.differences(before) == set()
    assert before.outputs["validation"]["cloud-a"]["verdict"] == "PASS"
    assert after.outputs["validation"]["cloud-a"]["verdict"] == "FAIL"


@pytest.mark.parametrize(
    ("kind", "node", "steps"),
    [
        ("lab", "b1", {"b1-scripts", "b1-prepare", "b1-register", "b1-node"}),
        ("lab", "head", {"head-scripts", "head-prepare", "head-head", "head-services"}),
        ("hosts", "dgx1", {"dgx1-scripts", "dgx1-prepare", "dgx1-register", "dgx1-node"}),
    ],
)
def test_another_repair_text_runs_the_steps_of_that_node_alone(
    build: Build, lab_config: RawConfig, hosts_config: RawConfig, kind: str, node: str, steps: set[str]
) -> None:
    config = {"lab": lab_config, "hosts": hosts_config}[kind]
    before = build(config)
    config["cluster"]["repair"] = {node: "2026-11-21"}
    after = build(config)
    assert after.differences(before) == steps
    assert {after.request(step)["repair"] for step in steps - {f"{node}-scripts"}} == {"2026-11-21"}
    # The same text once more is no new repair.
    assert build(config, again=True).differences(after) == set()


def test_another_user_touches_the_nodes_and_no_measurement(build: Build, lab_config: RawConfig) -> None:
    before = build(lab_config)
    lab_config["users"].append({"name": "bob", "uid": 6002})
    after = build(lab_config)
    looks = {"head-prepare", "a1-prepare", "b1-prepare"}  # whether the uid is free, before anything is changed
    # The head node's services give the user an account.
    assert after.differences(before) == looks | {"head-head", "head-services", "a1-node", "b1-node"}
    assert after.header("a1-node")["users_lines"] == "ada 6001 6001\nbob 6002 6002"


def test_a_users_key_touches_accounts_and_nothing_that_machines_check(build: Build, lab_config: RawConfig) -> None:
    before = build(lab_config)
    assert before.header("a1-node")["user_keys_lines"] == ""
    lab_config["users"][0]["keys"] = [f"{public_key('laptop')} laptop", public_key("desk")]
    after = build(lab_config)
    assert after.differences(before) == {"head-head", "head-services", "a1-node", "b1-node"}
    lines = f"ada {public_key('laptop')} laptop\nada {public_key('desk')}"
    assert after.header("a1-node")["user_keys_lines"] == lines


def test_a_group_and_a_member_change_only_accounts_and_machine_checks(build: Build, lab_config: RawConfig) -> None:
    before = build(lab_config)
    assert before.header("a1-node")["user_groups_lines"] == ""
    lab_config["groups"] = [{"name": "vision", "gid": 7001}]
    lab_config["users"][0]["groups"] = ["vision"]
    after = build(lab_config)
    accounts = {"head-head", "a1-node", "b1-node"}
    assert after.differences(before) == {"head-prepare", "a1-prepare", "b1-prepare", *accounts}
    assert after.header("a1-node")["user_groups_lines"] == "vision 7001"
    assert after.header("a1-node")["user_groups_members"] == "vision ada"
    assert "\nGroupUpdateTime=15\n" in after.header("head-head")["slurm_slurm_conf"]
    assert "GroupUpdateTime" not in before.header("head-head")["slurm_slurm_conf"]


def test_a_new_munge_generation_touches_the_key_and_with_it_every_join(build: Build, lab_config: RawConfig) -> None:
    before = build(lab_config)
    lab_config["cluster"]["munge_generation"] = "2"
    after = build(lab_config, munge_key="another key")
    assert after.differences(before) == {"munge-key", "head-prepare", "head-services", "a1-prepare", "b1-prepare"}


def test_the_head_nodes_answer_brings_the_authorities_that_a_node_trusts(build: Build, lab_config: RawConfig) -> None:
    both = f"# 1800000000\n{AUTHORITY}\n{LEAVE_KEY}\n# leave {LEAVE_KEY}\n# leave {AUTHORITY}"
    stack = build(lab_config, answers={"b1-register": {"authorities": both}})
    assert stack.header("b1-node")["node_authorities"] == both
    short = f"{AUTHORITY}\n# leave {LEAVE_KEY}", f"# 1\n{AUTHORITY}"
    for told in (*short, f"# 1\n# leave {LEAVE_KEY}\n{AUTHORITY}", f"{both} x"):
        stack = build(lab_config, answers={"b1-register": {"authorities": told}})
        assert stack.header("b1-node")["node_authorities"] == ""
        assert stack.header("b1-node")["head_problem"] == "its answer has no valid authorities"


# What the config says arrives.


def test_a_head_that_computes_is_in_topology_partitions_and_measurements(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    header = stack.header("head-head")
    assert (header["head_computes"], header["node_name"], header["node_site"]) == ("true", "head", "cloud-a")
    assert {"slurmd", "python3-mpi4py"} <= {*stack.packages("head-head")[0]}
    assert "slurm/compute" in stack.called("head-head")
    assert re.findall(r"^\w+", stack.header("validate-cloud-a")["members"], re.MULTILINE) == ["a1", "head"]


def test_a_head_that_does_not_compute_runs_no_job(build: Build, lab_config: RawConfig) -> None:
    lab_config["head"]["compute"] = False
    stack = build(lab_config)
    assert stack.header("head-head")["head_computes"] == "false"
    assert not {"slurmd", "python3-mpi4py"} & {*stack.packages("head-head")[0]}
    assert "slurm/compute" not in stack.called("head-head")
    assert stack.validations == {"validate-cross-site"}  # no site has two ranks left
    assert re.findall(r"^\w+", stack.header("validate-cross-site")["members"], re.MULTILINE) == ["a1", "b1"]


def test_a_log_in_node_has_the_share_and_slurms_commands_and_runs_no_job(build: Build, lab_config: RawConfig) -> None:
    lab_config["sites"][0]["pools"].append({"name": "login", "login": True})
    stack = build(lab_config)
    called = stack.called("login1-node")
    assert {"mounts/compute", "slurm/login", "user_limits/head", "tailrack/services"} <= {*called}
    assert "slurm/compute" not in called
    assert not {"slurmd", "python3-mpi4py"} & {*stack.packages("login1-node")[0]}
    header = stack.header("login1-register")
    assert header["node_login"].endswith(" 22")
    assert header["node_fabric"] == "tailnet", "no node proves its fabric with it"
    assert stack.header("a1-register")["node_login"] == ""
    plans = [stack.header(name)["plan"] for name in stack.validations]
    assert plans
    assert not any("login1" in plan for plan in plans)


def test_the_head_node_and_all_others_mount_the_share_of_the_storage_node(build: Build, lab_config: RawConfig) -> None:
    lab_config["sites"][1]["pools"].append({"name": "s", "login": True})
    lab_config["storage"] = {"node": "s1"}
    stack = build(lab_config)
    assert [*stack.called("s1-storage")] == ["share/storage", "user_groups/storage"]
    head = stack.header("head-head")
    assert (head["share_address"], head["share_name"]) == (tailnet_address("s1"), "ab" * 16)
    assert stack.header("b1-node")["share_address"] == tailnet_address("s1")
    steps = [resource.name for resource in stack.remote]
    order = ["head-prepare", "s1-prepare", "s1-storage", "head-head", "s1-register", "a1-register", "a1-node"]
    assert [step for step in steps if step in order] == order
    phases = [*stack.called("head-head")]
    assert phases.index("share/head") < phases.index("names/head")


def test_gpus_of_the_config_reach_gate_gres_features_and_partitions(build: Build, hosts_config: RawConfig) -> None:
    stack = build(hosts_config)
    gate, node, member = stack.header("dgx1-prepare"), stack.header("dgx1-node"), stack.header("dgx1-register")
    assert (gate["node_gpu_kind"], gate["node_gpu_count"]) == ("h200", "8")
    assert (node["node_features"], node["node_gres"]) == ("site-rack,gpu-h200,nvlink", "gpu:h200:8")
    assert node["node_gres_conf"] == "NodeName=dgx1 Name=gpu Type=h200 File=/dev/nvidia[0-7]"
    assert stack.header("box1-node")["node_gres_conf"] == "NodeName=box1 Name=gpu Type=rtx4090 File=/dev/nvidia0"
    assert "\nPartitionName=h200 Nodes=gpu-h200 " in member["node_slurm_conf"]
    assert stack.outputs["cluster"]["partitions"] == ["all", "rack", "h200", "rtx4090"]


FOUND = {"gpus": 2, "gpu_kind": "h200", "gpu_devices": [1, 3], "gpu_memory_mb": 143771, "gpu_driver": "580.159.04"}


def test_gpus_that_the_config_does_not_name_are_those_of_the_machine(build: Build, hosts_config: RawConfig) -> None:
    del hosts_config["sites"][0]["hosts"][1]["gpu"]
    stack = build(hosts_config, answers={"dgx1-prepare": FOUND})
    gate, node, member = stack.header("dgx1-prepare"), stack.header("dgx1-node"), stack.header("dgx1-register")
    assert (gate["node_gpu_kind"], gate["node_gpu_count"]) == ("", "0")
    assert (node["node_features"], node["node_gres"]) == ("site-rack,gpu-found,gpu-h200,nvlink", "gpu:h200:2")
    assert node["node_gpu_count"] == "2"
    assert node["node_gres_conf"] == "NodeName=dgx1 Name=gpu Type=h200 File=/dev/nvidia[1,3]"
    assert "\nPartitionName=gpu Nodes=gpu-found " in member["node_slurm_conf"]
    assert "PartitionName=h200" not in member["node_slurm_conf"]
    assert member["node_memory"].splitlines()[-1].startswith("gpu-found ")
    assert stack.outputs["cluster"]["partitions"] == ["all", "rack", "h200", "rtx4090", "gpu"]
    shown = {each["name"]: each.get("gpu") for each in stack.outputs["cluster"]["nodes"]}
    assert shown["door"] is None
    card = {"kind": "h200", "memory_mb": 143771, "driver": "580.159.04", "nvlinks": 0, "confined": False}
    assert shown["dgx1"] == card


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({**FOUND, "gpu_devices": [0, 1], "gpu_kind": "b200"}, "it shows b200:2 and the config promises h200:8"),
        ({"gpu_devices": []}, "it shows no GPU and the config promises h200:8"),
        ({"gpu_devices": [0, 0]}, "its answer has no valid gpu_devices"),
        ({"gpu_kind": "h200 Features=x"}, "its answer has no valid gpu_kind"),
    ],
)
def test_other_gpus_are_refused(build: Build, hosts_config: RawConfig, answer: dict[str, Any], problem: str) -> None:
    stack = build(hosts_config, answers={"dgx1-prepare": answer})
    assert stack.header("dgx1-register")["node_problem"] == problem
    assert stack.header("dgx2-register")["node_problem"] == ""


def test_the_facts_of_a_machine_never_change_the_set_of_resources(build: Build, hosts_config: RawConfig) -> None:
    for host in hosts_config["sites"][0]["hosts"]:
        host.pop("gpu", None)
    named = [build(hosts_config, answers={"dgx1-prepare": answer}).names for answer in ({}, FOUND)]
    assert named[0] == named[1] == build(hosts_config, unknown=True).names


def test_the_steps_of_an_adopted_host_know_that_it_is_adopted(build: Build, hosts_config: RawConfig) -> None:
    hosts_config["sites"][0]["hosts"][-1]["adopt"] = True
    name = hosts_config["sites"][0]["hosts"][-1]["name"]
    stack = build(hosts_config)
    adopting = {step.name for step in stack.remote if stack.header(step.name).get("node_adopt") == "true"}
    assert adopting == {f"{name}-prepare", f"{name}-register"}
    assert json.loads(stack.header(f"{name}-node")["node_leave_values"])["values"]["node_adopt"] is True


def test_cgroups_follow_the_config_and_else_the_head_node(build: Build, lab_config: RawConfig) -> None:
    for asked, offered, wanted in ((None, True, True), (None, False, False), (False, True, False), (True, False, True)):
        lab_config["slurm"] = {"cgroups": asked}
        stack = build(lab_config, answers={"head-prepare": {"cgroups": offered}})
        plugin = "proctrack/cgroup" if wanted else "proctrack/linuxproc"
        assert f"ProctrackType={plugin}\n" in stack.header("head-head")["slurm_slurm_conf"], (asked, offered)
        assert stack.header("a1-prepare")["head_cgroups"] == ("true" if wanted else "false"), (asked, offered)


def test_each_machine_has_the_keys_of_its_own_check(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config, answers={"head-prepare": {"cgroups": True}, "a1-prepare": {"cgroups": True}})
    for node, profile in (("head", "cgroups"), ("a1", "cgroups"), ("b1", "processes")):
        last = stack.header("head-head" if node == "head" else f"{node}-node")
        assert ("proctrack/cgroup" in last["node_slurm_keys"]) == (profile == "cgroups")
        assert ("CgroupPlugin=disabled" in last["node_cgroup_keys"]) == (profile == "processes")
        assert stack.header(f"{node}-{'head' if node == 'head' else 'register'}")["node_profile"] == profile
    assert stack.header("head-head")["node_confined"] == stack.header("a1-node")["node_confined"] == "true"
    assert stack.header("b1-node")["node_confined"] == "false"


def test_nodes_join_the_labs_or_configs_tailnet(build: Build, lab_config: RawConfig, hosts_config: RawConfig) -> None:
    assert build(lab_config).header("a1-prepare")["tailnet_control_url"] == "http://control.lab:8080"
    assert build(hosts_config).header("dgx1-prepare")["tailnet_control_url"] == ""  # Tailscale's own
    hosts_config["tailnet"] = {"control_url": "https://headscale.example.org", "tag": "tag:gpu"}
    header = build(hosts_config).header("dgx1-prepare")
    assert (header["tailnet_control_url"], header["tailnet_tag"]) == ("https://headscale.example.org", "tag:gpu")


@pytest.mark.parametrize("step", ["prepare", "head"])
def test_a_head_node_that_prints_no_json_stops_the_program(build: Build, lab_config: RawConfig, step: str) -> None:
    message = rf"^step head-{step}: its answer is not a JSON object of at most 1048576"
    with pytest.raises(pulumi.RunError, match=message):
        build(lab_config, answers={f"head-{step}": "Segmentation fault"})


def test_a_certificate_that_is_none_is_refused_by_its_node_and_by_no_other(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config, answers={"b1-register": {"certificate": f"{certificate_of('b1')}\nHostKey /tmp/x"}})
    assert stack.header("b1-node")["node_certificate"] == ""
    assert stack.header("b1-node")["head_problem"] == "its answer has no valid certificate"
    assert stack.header("a1-node")["head_problem"] == ""


@every_kind
def test_every_command_names_its_action_and_its_machine(build: Build, config: RawConfig) -> None:
    stack = build(config)
    commands = [resource for resource in stack.resources if resource.type.startswith("command:")]
    words = {each.name: command_of(each.inputs) for each in commands}
    labels = {name: StepLabel.of(command) for name, command in words.items()}
    assert [name for name, label in labels.items() if label is None or label.name != name] == []
    addresses = {step.name: step.inputs["connection"]["host"] for step in [*stack.remote, *stack.copies]}
    gates = {name.removesuffix("-prepare"): addresses[name] for name in addresses if name.endswith("-prepare")}
    for name, label in labels.items():
        assert label is not None
        assert gates.get(label.machine) == addresses.get(name), name  # a local command has neither


def test_a_sites_fabric_concerns_the_steps_of_its_nodes_alone(build: Build, hosts_config: RawConfig) -> None:
    before = build(hosts_config)
    assert before.header("dgx1-prepare")["node_fabric"] == "auto"
    hosts_config["sites"][0]["fabric"] = "ib0"
    after = build(hosts_config)
    nodes = ("dgx1", "dgx2", "box1")
    touched = {f"{node}-{step}" for node in nodes for step in ("prepare", "register")} | {"door-prepare", "door-head"}
    assert before.differences(after) == touched
    assert json.loads(after.header("dgx1-register")["node_networks"]) == {"interfaces": [], "rdma": []}
