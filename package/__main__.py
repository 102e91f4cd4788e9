"""The package for programs in any language: a component provider with the components `Cluster` and `Pool`.

The commands of the Makefile and rented machines are for stacks of tailrack itself.

It is not in the repository's root, because Pulumi would start the stack's program there.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))  # Pulumi starts this file from its folder

import pulumi  # noqa: E402
from pulumi.provider import ConstructResult, Provider, main  # noqa: E402
from pulumi.runtime import settings  # noqa: E402

from components.cluster.head_link import HeadLink  # noqa: E402
from components.roles.network.tailnet.settings import TAILSCALE  # noqa: E402
from components.settings.problems import ROOT  # noqa: E402
from package.arguments import CLUSTER, JOINED, POOL, SCHEMA, Config, camel, of_another_stack  # noqa: E402
from stacks.cluster import ClusterStack  # noqa: E402
from stacks.config import ConfigError, PoolConfig, parse  # noqa: E402
from stacks.elastic_limits import Allowed  # noqa: E402
from stacks.joining import problems  # noqa: E402
from stacks.look_at_clouds import Rentals  # noqa: E402
from stacks.pool import PoolStack  # noqa: E402
from stacks.read_outputs import StackOutputs  # noqa: E402
from stacks.release import RELEASE  # noqa: E402
from stacks.tailnet.access import tailnet_kind  # noqa: E402

NO_PODS = "are pods; with tailnet.kind tailscale, only pools of tailrack's own stacks may have pods"
# The engine does not return the outputs of a component when it registers, so measurements have no history.
NO_LAST_RUN = StackOutputs()
MEASUREMENTS = ("validation", "training", "storage")


class Component(pulumi.ComponentResource):
    """A component with results of measurements, and the parent of all resources without one in this Construct."""

    def __init__(self, token: str, name: str, opts: pulumi.ResourceOptions | None) -> None:
        super().__init__(token, name, None, opts)
        settings.set_root_resource(self)

    def register(self, outputs: Mapping[str, Any], *names: str) -> None:
        """Register outputs of a stack as those of the component."""
        names = ("busbw_gb_per_s", *MEASUREMENTS, *names)
        self.outputs = {camel(name): outputs[name] for name in names if name in outputs}
        self.outputs["summary"] = outputs["cluster"]
        self.register_outputs(self.outputs)


class Cluster(Component):
    """A Slurm cluster over a tailnet, measured at its end."""

    def __init__(self, name: str, arguments: Mapping[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        config = Config.of(arguments)
        checked = parse(config.raw, base_dir=Path.cwd(), secret_keys=frozenset(config.secret_keys))
        super().__init__(CLUSTER, name, opts)
        rentals = Rentals(checked.sites, checked.nodes(), {}, config.connections)
        outputs = ClusterStack(checked, pulumi.get_stack(), NO_LAST_RUN, rentals).outputs
        address = {"control_address": outputs["cluster"]["control_address"]}
        self.register({**outputs, **address}, "control_address", "head_link")


class Pool(Component):
    """Machines that join the cluster of another stack, by its outputs, and are measured with it.

    A cluster of the same stack is refused: a preview must know its settings, and its own sites do the same.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        cluster, link = (of_another_stack(arguments.get(argument), argument) for argument in JOINED)
        config = Config.of({key: value for key, value in arguments.items() if key not in JOINED}, POOL)
        raw = config.raw | {"kind": "pool", "cluster": cluster["name"] if cluster else "unknown"}
        checked = parse(raw, PoolConfig, base_dir=Path.cwd(), secret_keys=frozenset(config.secret_keys))
        stack = f"{pulumi.get_stack()}.{name}"  # a stack may have several pools
        head = HeadLink.settings_of(link) if link else None
        reasons = list(problems(checked, stack, cluster, link, head))
        if reasons or head is None:
            raise ConfigError(reasons)
        if tailnet_kind(checked.tailnet, checked.sites) == TAILSCALE and any(node.pod for node in checked.nodes()):
            raise pulumi.InputPropertyError("sites", NO_PODS)
        super().__init__(POOL, name, opts)
        rentals = Rentals(checked.sites, checked.nodes(), {}, config.connections)
        to_head, allowed = HeadLink.from_outputs(link, head), Allowed(checked.nodes())
        self.register(PoolStack(checked, stack, NO_LAST_RUN, cluster, to_head, rentals, allowed).outputs)


class Tailrack(Provider):
    """The provider. It reports a config that cannot be used as problems of arguments, without a traceback."""

    def construct(
        self, name: str, resource_type: str, inputs: Mapping[str, Any], options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Create a cluster or a pool."""
        try:
            component = (Pool if resource_type == POOL else Cluster)(name, inputs, options)
        except ConfigError as error:
            detail, root = pulumi.InputPropertyErrorDetails, len(ROOT)
            reasons = [detail(property_path=camel(each.path[root:]), reason=each.text) for each in error.problems]
            raise pulumi.InputPropertiesError("", reasons) from None
        except pulumi.RunError as error:
            raise pulumi.InputPropertiesError(str(error), []) from None
        return ConstructResult(component.urn, component.outputs)


if __name__ == "__main__":
    main(Tailrack(RELEASE, SCHEMA.read_text(encoding="utf-8")), sys.argv[1:])
