"""The package for programs in any language: a component provider with one component, `Cluster`.

It is not in the repository's root, because Pulumi would start the stack's program there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))  # Pulumi starts this file from its folder

import pulumi  # noqa: E402
from pulumi.provider import ConstructResult, Provider, main  # noqa: E402
from pulumi.runtime import settings  # noqa: E402

from components.settings.problems import ROOT  # noqa: E402
from package.arguments import CLUSTER, SCHEMA, Config, camel  # noqa: E402
from stacks.cluster import ClusterStack  # noqa: E402
from stacks.config import ConfigError, parse  # noqa: E402
from stacks.read_outputs import StackOutputs  # noqa: E402
from stacks.release import RELEASE  # noqa: E402
from stacks.rentals import Rentals  # noqa: E402


class Cluster(pulumi.ComponentResource):
    """A Slurm cluster over a tailnet, measured at its end.

    The component does not know its last run, so measurements have no history. The commands of the Makefile, rented
    machines and pools are for stacks of tailrack itself.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        config = Config.of(arguments)
        checked = parse(config.raw, base_dir=Path.cwd(), secret_keys=frozenset(config.secret_keys))
        super().__init__(CLUSTER, name, None, opts)
        settings.set_root_resource(self)  # the parent of resources without one, in this call of Construct
        rentals = Rentals(checked.sites, checked.nodes(), {}, config.connections)
        last_run = StackOutputs({}, frozenset())
        outputs = ClusterStack(checked, pulumi.get_stack(), last_run, rentals).outputs
        self.outputs = {camel(name): outputs[name] for name in ("busbw_gb_per_s", "validation", "head_link")}
        self.outputs |= {"summary": outputs["cluster"], "controlAddress": outputs["cluster"]["control_address"]}
        self.register_outputs(self.outputs)


class Tailrack(Provider):
    """The provider. It reports a config that cannot be used as problems of arguments, without a traceback."""

    def construct(
        self, name: str, resource_type: str, inputs: Mapping[str, Any], options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Create a cluster."""
        try:
            cluster = Cluster(name, inputs, options)
        except ConfigError as error:
            detail, root = pulumi.InputPropertyErrorDetails, len(ROOT)
            problems = [detail(property_path=camel(each.path[root:]), reason=each.text) for each in error.problems]
            raise pulumi.InputPropertiesError("", problems) from None
        except pulumi.RunError as error:
            raise pulumi.InputPropertiesError(str(error), []) from None
        return ConstructResult(cluster.urn, cluster.outputs)


if __name__ == "__main__":
    main(Tailrack(RELEASE, SCHEMA.read_text(encoding="utf-8")), sys.argv[1:])
