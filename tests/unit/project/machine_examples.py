"""Run examples/machines for one cloud with Pulumi's mocks and print what came of it as JSON. A program:

    python -m tests.unit.project.machine_examples CLOUD CONFIG_AS_JSON

The packages' own classes refuse unknown and missing arguments. The mocks answer what a cloud would know only later.
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pulumi

from tests.unit.configs import HOST_KEY

PROJECT = Path(__file__).parents[3]
EXAMPLE = PROJECT / "examples" / "machines"
PACKAGES = PROJECT / ".tailrack" / "packages"
PUBLIC = "198.51.100.7"
ANSWERS: dict[str, dict[str, Any]] = {
    "tls:index/privateKey:PrivateKey": {"publicKeyOpenssh": f"{HOST_KEY}\n", "privateKeyOpenssh": "HOST-KEY-SECRET"},
    "gcp:compute/instance:Instance": {"networkInterfaces": [{"accessConfigs": [{"natIp": PUBLIC}]}]},
    "digitalocean:index/droplet:Droplet": {"ipv4Address": PUBLIC},
}


class Clouds(pulumi.runtime.Mocks):
    """Answers of clouds that are played; the resources that were asked for are kept."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.resources.append({"type": args.typ, "name": args.name, "inputs": args.inputs})
        return f"{args.name}-id", {**args.inputs, **ANSWERS.get(args.typ, {})}

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        raise NotImplementedError(args.token)


def run(cloud: str, config: dict[str, str]) -> dict[str, Any]:
    """Run the example and return the hosts that it exported and the resources that it declared."""
    clouds, outputs = Clouds(), dict[str, Any]()
    pulumi.runtime.set_mocks(clouds, project="machines", stack="prod")
    given = {"cloud": cloud, "count": "2", "login_key": HOST_KEY} | config
    pulumi.runtime.set_all_config({f"machines:{key}": value for key, value in given.items()})

    @pulumi.runtime.test
    def program() -> pulumi.Output[Any]:
        pulumi.export = outputs.__setitem__  # type: ignore[assignment]
        runpy.run_path(str(EXAMPLE / "__main__.py"), run_name="__main__")
        return pulumi.Output.from_input(outputs["hosts"]).apply(lambda hosts: outputs.update(hosts=hosts))

    program()
    return {"hosts": outputs["hosts"], "resources": clouds.resources}


def main(cloud: str, config: str) -> None:
    """Run the example twice, the second time for spot machines: importing a package of a cloud takes seconds."""
    sys.path[:0] = [str(EXAMPLE), str(PACKAGES)]
    keys = json.loads(config)
    spot = run(cloud, keys | {"spot": "true"})["resources"]
    sys.stdout.write(json.dumps(run(cloud, keys) | {"spot": spot}))


if __name__ == "__main__":
    main(*sys.argv[1:])
