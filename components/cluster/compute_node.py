"""A compute node and its records on the head node. Its steps change only these two machines."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pulumi

from components.cluster.head_link import HeadLink
from components.cluster.tailnet_access import NO_KEY, TailnetAccess
from components.host import Host, Machine
from components.roles.cluster_settings import ClusterSettings
from components.roles.network.tailnet.policy import pod_tag
from components.roles.role import Role
from components.roles.slurm.slurm.machine_keys import machine_keys
from components.roles.slurm.slurm.node_lines import NodeGpus, memory_values, node_values
from components.roles.storage.share.exports import export_line
from components.settings.network_names import ON_THE_TAILNET
from components.steps import composition
from components.steps.command_line import TIME_LIMIT_SECONDS, kept_request
from components.steps.delivery import deliver
from components.steps.step import REPAIR, Step
from components.steps.values import OutputField, Value, as_output, combine, output_fields

# A check takes seconds, but a new machine may be busy with cloud-init or its first updates (node/packages.py).
CHECK_LIMIT_SECONDS = 1500
# One CPU compiles a release of Slurm in less than an hour, after making a root folder (role slurm_release).
BUILD_LIMIT_SECONDS = 7200


def node_header(host: Host) -> dict[str, pulumi.Input[Any]]:
    """Return the header values of a node that are known before it joins."""
    return {
        "node_name": host.name,
        "node_adopt": host.adopt,
        "node_take_over": host.take_over,
        # The proof of a node that runs jobs must not ask a log-in node, and wait for it.
        "node_fabric": ON_THE_TAILNET if host.login else host.fabric,
        "node_rdma": host.rdma,
        "node_relay_port": host.relay_port,
        "node_price": host.price,
        "node_spot": host.spot,
        "node_promised_cpus": host.promised_cpus,
        "node_promised_mb": host.promised_mb,
        "node_login": _login(host) if host.login else "",
        **node_values(host),
    }


def _login(host: Host) -> pulumi.Input[str]:
    """Return a log-in node's address and port for users' computers; behind a bastion, a text without a port."""
    to = host.connection
    return pulumi.Output.format("{} {}", to.host, to.port) if to and not to.bastion else "behind-a-bastion"


def detected_header(
    host: Host,
    facts: pulumi.Output[dict[str, Any]],
    settings: ClusterSettings,
    head_cgroups: pulumi.Input[bool],
    path: Value,
) -> dict[str, OutputField]:
    """Return the header values that depend on a machine's facts, such as its GPUs, keys, address and networks.

    path   the share's path
    """

    def values(resolved: Mapping[str, Any]) -> dict[str, object]:
        found = resolved["facts"]
        gpus = NodeGpus.found(host, found)
        return {
            **node_values(host, gpus),
            **memory_values(host, found["cpus"] or 1, found["memory_mb"] or 1, gpus),
            **machine_keys(found, settings, resolved["head_cgroups"], pod=host.pod),
            "node_open_ports": found.get("open_ports") or [],
            "node_kernel_nfs": bool(found.get("kernel_nfs_server")),
            "node_address": found["tailnet_ip"],
            "node_export": export_line(resolved["path"], found["tailnet_ip"]),
            "node_firewall": found["firewall"] or "",
            "node_host_key": found["host_key"],
            "node_sshd_port": found["sshd_port"],
            "node_networks": json.dumps(found.get("fabric")),
            "node_problem": found["problem"] or gpus.problem(host),
        }

    header_values = as_output({"facts": facts, "head_cgroups": head_cgroups, "path": path}, values)
    # Any facts give the same names.
    names = values({"facts": defaultdict(lambda: None), "head_cgroups": False, "path": ""})
    return output_fields(header_values, names)


def detected_gpus(host: Host, facts: pulumi.Output[dict[str, Any]]) -> pulumi.Output[str]:
    """Return the GPUs that the check found on a node: `h200:8`, or empty."""
    return as_output({"facts": facts}, lambda resolved: str(NodeGpus.found(host, resolved["facts"])))


def limit_with_jobs(settings: ClusterSettings) -> int:
    """Return the time limit of a step that waits for jobs: it includes the limits of a job and of a build."""
    return (
        TIME_LIMIT_SECONDS + settings.slurm.job_limit_seconds + (BUILD_LIMIT_SECONDS if settings.slurm.release else 0)
    )


@dataclass(frozen=True)
class Steps:
    """The phases of the steps on a compute node, and of its leaving."""

    check: tuple[str, ...] = composition.CHECK_OF_NODE
    join: tuple[str, ...] = composition.JOIN_OF_NODE
    node: tuple[str, ...] = composition.NODE
    services: tuple[str, ...] = composition.NODE_SERVICES
    leave: tuple[str, ...] = composition.LEAVE
    register: tuple[str, ...] = composition.REGISTER


MACHINE = Steps()
LOGIN = Steps(node=composition.LOGIN)
POD = Steps(
    check=composition.CHECK_OF_POD,
    join=composition.JOIN_OF_POD,
    node=composition.POD,
    leave=composition.LEAVE_OF_POD,
    register=composition.REGISTER_OF_POD,
)


@lru_cache
def _services(roles: tuple[Role, ...], steps: Steps) -> composition.Script | None:
    """Return the script of a node's services; None if no role has any."""
    phases = steps.services
    return composition.compose(roles, phases) if composition.has_work(roles, phases) else None


@lru_cache
def _scripts(roles: tuple[Role, ...], steps: Steps) -> tuple[composition.Script, ...]:
    """Return the scripts of the steps on a node: prepare and node."""
    # The head node may need a while longer, so this step installs packages of the next one.
    prepare = composition.prepare(roles, steps.check, steps.join, ahead=steps.node)
    node = composition.compose(roles, steps.node)
    plans = {
        "node_leave_plan": composition.leave_program(roles, steps.leave).file,
        "node_boot_plan": composition.boot_program(roles).file,
    }
    return prepare, node.with_texts({name: plans[name] for name in plans.keys() & node.phases})


class Member(pulumi.ComponentResource):
    """A machine of the cluster with its steps.

    host      the machine
    _roles    its roles
    _secrets  header values that are secret, by name
    """

    host: Host
    _roles: Sequence[Role]
    _secrets: Mapping[str, pulumi.Input[str]]

    def _deliver(
        self, scripts: Sequence[composition.Script], values: Mapping[str, Value], after: Sequence[pulumi.Resource] = ()
    ) -> list[pulumi.Resource]:
        """Copy the scripts of its steps to the machine; return the resources that do so."""
        name, repair = self.host.name, str(values.get(REPAIR, ""))
        label = f"{name}: copy setup scripts"
        return deliver(f"{name}-scripts", self.host, scripts, label=label, parent=self, repair=repair, depends_on=after)

    def _step(
        self,
        kind: str,
        script: composition.Script,
        phases: Sequence[str],
        values: Mapping[str, Value],
        label: str,
        depends_on: Sequence[pulumi.Resource],
        *,
        on: Machine | None = None,
        needed: bool = False,
        **more: Any,
    ) -> Step:
        """Return a step with the facts of its phases. `needed`: without its answer the program cannot go on."""
        answer = composition.answer(self._roles, phases)
        return Step(
            f"{self.host.name}-{kind}",
            on or self.host,
            script,
            values,
            secrets=self._secrets,
            label=f"{self.host.name}: {label}",
            answer=answer.as_needed() if needed else answer,
            parent=self,
            depends_on=depends_on,
            **more,
        )

    def _prepare(
        self,
        script: composition.Script,
        phases: Sequence[str],
        values: Mapping[str, Value],
        delivered: Sequence[pulumi.Resource],
        join_limit: int,
        **more: Any,
    ) -> Step:
        """Return the step that checks the machine and lets it join, within `join_limit` seconds after the checks."""
        label, limit = "check the machine, join the tailnet", CHECK_LIMIT_SECONDS + join_limit
        return self._step("prepare", script, phases, values, label, delivered, limit_seconds=limit, **more)


class ComputeNode(Member):
    """One member of the cluster.

    facts    Output[dict], the facts that `prepare` reported; Slurm's version is the installed or the future one
    gpus     Output[str], the GPUs of the machine: `h200:8`, or empty
    path     how the head node reaches it: `direct`, `peer-relay` or `relay`
    fabric   the result of the fabric proof in its site (components/roles/network/fabric/groups.py); None on the tailnet
    confined whether cgroups confine jobs on it
    ready    the resource after which Slurm gives the node jobs
    share    the step after which a storage node serves the share
    registered   the resource after which the head node knows the node

    Its scripts are copied first. Then come three steps: prepare on the node; register on the head node, which on delete
    drains the node, waits for or requeues its jobs, makes it leave and removes its records; then users, share and
    slurmd on the node.

    values, secrets   header values from the cluster's config, by name
    access            access to the tailnet
    after             resources that come before the scripts
    serves            whether it is the storage node: the head node waits for its share, and then it can `join`
    """

    def __init__(
        self,
        host: Host,
        head: HeadLink,
        roles: Sequence[Role],
        values: Mapping[str, Value],
        secrets: Mapping[str, pulumi.Input[str]],
        access: TailnetAccess = NO_KEY,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
        *,
        serves: bool = False,
    ) -> None:
        # The preview shows the partition of a new node's GPUs (cli/preview/effects.py).
        inputs = {"gpuKind": host.gpu.kind} if host.gpu else {}
        super().__init__("tailrack:cluster:ComputeNode", host.name, inputs, opts)
        self.host = host
        machine = LOGIN if host.login else MACHINE
        roles, steps = (composition.on_pods(roles), POD) if host.pod else (tuple(roles), machine)
        values = {**values, **head.header, **node_header(host)}
        if host.pod:
            values["tailnet_tag"] = pod_tag(str(values["tailnet_tag"]))
            if access.for_pods is not None:
                access = access.for_pods
                secrets = {**secrets, "tailnet_auth_key": pulumi.Output.secret(access.auth_key)}
        prepare_script, node_script = _scripts(roles, steps)
        services = _services(roles, steps)
        self._roles, self._secrets = roles, secrets
        storage = composition.compose(roles, composition.STORAGE)
        scripts = (prepare_script, node_script, *([services] if services else []), *([storage] if serves else []))
        delivered = self._deliver(scripts, values, after)
        phases, renewed = (*steps.check, *steps.join), access.renewed_secrets
        prepare = self._prepare(prepare_script, phases, values, delivered, TIME_LIMIT_SECONDS, renewed=renewed)
        self.facts = prepare.result
        values |= detected_header(host, self.facts, head.settings, head.cgroups, values["share_path"])
        self.confined = values["node_confined"]
        self._in_tailnet = in_tailnet = access.after_join(host.name, self.facts, self, prepare.resource, host.adopt)
        self.gpus = detected_gpus(host, self.facts)
        self._values, self._steps, self._node_script, self._services = values, steps, node_script, services
        if serves:
            label = "serve the share"
            self.share = self._step("storage", storage, composition.STORAGE, values, label, in_tailnet, needed=True)
        else:
            self.join(head)

    def join(self, head: HeadLink) -> None:
        """Register the node and make it a member."""
        host, roles, steps, services = self.host, self._roles, self._steps, self._services
        values = {**self._values, **head.header}
        register = self._step(
            "register",
            composition.compose(roles, steps.register),
            steps.register,
            values,
            "register on the head node",
            [*self._in_tailnet, *([head.ready] if head.ready else [])],
            on=head.machine,
            limit_seconds=limit_with_jobs(head.settings),
            lock=None,
        )
        self.registered = register.resource
        self.path: Value = OutputField(register.result, "path")
        self.fabric = pulumi.Output.from_input(None) if host.pod else OutputField(register.result, "fabric")
        if host.pod:
            found = OutputField(register.result, "neighbours")
            values["node_neighbours"] = combine({"": found}, lambda resolved: json.dumps(resolved[""] or []))
        kept = {
            "node_leave_values": composition.leave_program(roles, steps.leave),
            **({"node_boot_values": composition.boot_program(roles)} if host.pod else {}),
        }
        node = self._step(
            "node",
            self._node_script,
            steps.node,
            {
                **values,
                "node_authorities": OutputField(register.result, "authorities"),
                "node_certificate": OutputField(register.result, "certificate"),
                "head_munge_digest": OutputField(register.result, "munge_digest"),
                "head_problem": OutputField(register.result, "problem"),
                **{
                    name: combine(
                        {value: values[value] for value in plan.reads},
                        lambda resolved: kept_request(host.name, resolved),
                    )
                    for name, plan in kept.items()
                },
            },
            f"users, share, {'commands of Slurm' if host.login else 'slurmd'}",
            [register.resource],
            limit_seconds=limit_with_jobs(head.settings),
        )
        self.ready: pulumi.Resource = node.resource
        if services is not None:
            # Nothing waits for this step: if services fail, the node still runs jobs and is measured.
            label, lock = "optional services", "tailrack-services"
            self._step("services", services, steps.services, values, label, [node.resource], lock=lock)
        address = combine({"": OutputField(self.facts, "tailnet_ip")}, lambda resolved: resolved[""])
        self.register_outputs({"tailnet_ip": address})
