"""The head node: it runs slurmctld and serves the share, and runs slurmd if it runs jobs too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pulumi

from components.cluster.compute_node import (
    ComputeNode,
    Member,
    detected_gpus,
    detected_header,
    limit_with_jobs,
    node_header,
)
from components.cluster.head_link import HeadLink
from components.cluster.secrets import MungeKey
from components.cluster.tailnet_access import TailnetAccess
from components.cluster.warnings import warnings_about
from components.host import Host
from components.measurement_jobs import plan
from components.measurement_jobs.job_plans import deep_check_text, job_plans
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role
from components.roles.slurm.slurm.slurm_conf import FILES, controller_files
from components.roles.slurm.slurm.versions import oldest_reached
from components.steps import composition
from components.steps.command_line import TIME_LIMIT_SECONDS, kept_request
from components.steps.step import Step
from components.steps.values import OutputField, Value, combine, output_fields

# The time limit of services that import images, each of which takes many minutes.
IMPORTS_LIMIT_SECONDS = 3 * 3600
# The time limit of a join that restores the users' homes.
HOMES_LIMIT_SECONDS = 16 * 3600


def scripts_for_nodes(roles: Sequence[Role], *, pods: bool) -> tuple[composition.Script, ...]:
    """Return the scripts of the head node's steps for nodes: registration and measurement. `pods`: some are pods."""
    of_pods = [composition.compose(composition.on_pods(roles), composition.REGISTER_OF_POD)] if pods else []
    return composition.compose(roles, composition.REGISTER), *of_pods, plan.script()


class HeadNode(Member):
    """The head node of a cluster. It does not depend on any node.

    facts, gpus, fabric, confined   as ComputeNode has them; `path` is `self`
    link            the values that a node needs of it
    notes           Output[list[str]], notes for people about limits of these machines (warnings.py)
    ready           the resource after which slurmctld and the share are up

    values, secrets   header values from the cluster's config, by name
    access            access to the tailnet
    pods              whether some of the stack's nodes are pods
    storage           makes the storage node, which joins when the head node has its share
    """

    def __init__(
        self,
        host: Host,
        settings: ClusterSettings,
        munge: MungeKey,
        roles: Sequence[Role],
        values: Mapping[str, Value],
        secrets: Mapping[str, pulumi.Input[str]],
        access: TailnetAccess,
        *,
        sites: Sequence[str],
        pods: bool = False,
        storage: Callable[[HeadLink], ComputeNode] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        # The state keeps the host key, to recognize the machine (cli/changes_to_allow.py). If the stack makes the
        # machine, the key is an Output, and the steps have it.
        key = host.connection.host_key if host.connection else None
        given = {"hostKey": key} if isinstance(key, str) else {}
        # The preview compares the release with those of machines.
        given |= {"slurmRelease": settings.slurm.release} if settings.slurm.release else {}
        super().__init__("tailrack:cluster:HeadNode", host.name, given, opts)
        self.host = host
        values = {**values, **node_header(host)}
        compute = settings.head.compute
        phases = composition.COMPUTING_HEAD if compute else composition.HEAD
        # Nodes wait for the address of the head node, not for its packages.
        prepare_script = composition.prepare(roles, composition.CHECK, composition.JOIN, next_phases=phases)
        expire = composition.expire_program(roles)
        head_script = composition.compose(roles, phases, leaves=True).with_texts({"head_expire_plan": expire.file})
        self._roles, self._services = roles, composition.compose(roles, composition.SERVICES)
        self._secrets = secrets
        measurements = [plan.script(job.command) for job in job_plans(settings, {}).values()]
        node_scripts = (*scripts_for_nodes(roles, pods=pods), *measurements)
        delivered = self._deliver((prepare_script, head_script, self._services, *node_scripts), values)
        checked, renewed = (*composition.CHECK, *composition.JOIN), access.renewed_secrets
        restores = settings.head.restore_from and settings.backup and settings.backup.homes
        limit = HOMES_LIMIT_SECONDS if restores else TIME_LIMIT_SECONDS
        prepare = self._prepare(prepare_script, checked, values, delivered, limit, needed=True, renewed=renewed)
        self.facts = prepare.result
        self.gpus = detected_gpus(host, self.facts)
        cgroups = settings.slurm.cgroups
        confined = self.facts["cgroups"] if cgroups is None else pulumi.Output.from_input(cgroups)
        self.confined = confined
        values |= detected_header(host, self.facts, settings, confined, values["share_path"])
        self.path: Value = "self"
        files = pulumi.Output.all(address=self.facts["tailnet_ip"], cgroups=confined).apply(
            lambda resolved: dict(controller_files(settings, roles, sites, resolved["address"], resolved["cgroups"]))
        )
        values |= {
            "head_address": self.facts["tailnet_ip"],
            "head_kernel_nfs": self.facts["kernel_nfs_server"],
            "head_cgroups": confined,
            "head_computes": compute,
            "head_deep_check": deep_check_text(settings),
            **output_fields(files, FILES),
        }

        version = self.facts["slurm_version"]
        self.link = HeadLink(
            machine=host,
            address=self.facts["tailnet_ip"],
            slurm_version=version,
            slurm_oldest=version.apply(oldest_reached),
            cgroups=confined,
            kernel_nfs=self.facts["kernel_nfs_server"],
            share_address=self.facts["tailnet_ip"],
            control_url=values["tailnet_control_url"],
            munge_key=munge.key,
            settings=settings,
        )
        self.storage = storage(self.link) if storage else None
        share = self.storage.share if self.storage else None
        self.link = replace(self.link, share_address=(self.storage or self).facts["tailnet_ip"])
        values |= {
            "share_address": self.link.share_address,
            "share_name": OutputField(share.result, "share_name") if share else "",
        }
        # The program sets node_name for each node that it removes.
        expire_values = {name: values[name] for name in expire.reads - {"node_name"}}
        expire_request = combine(expire_values, lambda resolved: kept_request(host.name, resolved))
        in_tailnet = access.after_join(host.name, self.facts, self, prepare.resource, host.adopt)
        head = self._step(
            "head",
            head_script,
            phases,
            {**values, "head_expire_values": expire_request},
            "users, NFS server, slurmctld",
            [*in_tailnet, *([share.resource] if share else [])],
            needed=True,
            limit_seconds=limit_with_jobs(settings),
        )
        self.ready: pulumi.Resource = head.resource
        self.link = replace(self.link, ready=self.ready)
        self.fabric = OutputField(head.result, "fabric")
        self._values = values
        self._imports = settings.containers is not None
        self.notes = pulumi.Output.all(
            own_file_system=(share or head).result["own_file_system"],
            open_ports=self.facts["open_ports"],
            user_limits=head.result["user_limits"],
            left_groups=head.result["left_groups"],
            restored=self.facts.apply(lambda facts: [facts.get("restored_made"), facts.get("restored_age")]),
        ).apply(lambda resolved: warnings_about(settings, **resolved))
        self.register_outputs({"tailnet_ip": self.link.address, "slurm_version": head.result["slurm_version"]})

    def services(self) -> Step:
        """Return the step of services that no node waits for. It runs beside the nodes' steps, with its own lock.

        It does not depend on nodes: a failed node must not delay the services, and if a node is removed while this step
        fails, the CLI (3.260) would write a state that it cannot read.
        """
        return self._step(
            "services",
            self._services,
            composition.SERVICES,
            self._values,
            "optional services",
            [self.ready],
            limit_seconds=IMPORTS_LIMIT_SECONDS if self._imports else TIME_LIMIT_SECONDS,
            lock="tailrack-services",
        )
