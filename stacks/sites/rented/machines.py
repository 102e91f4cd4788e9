"""Machines that the stack rents with the programs in stacks/rental: one command resource per machine."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_command import local

from components.host import Connection, Host
from components.steps.label import StepLabel
from components.steps.step import parse_result
from components.steps.values import as_output
from stacks.rental.cloud import SSH_PORT
from stacks.sites.machines import Machines, host_of
from stacks.sites.rented.first_key import first_key, own_key_connection
from stacks.sites.rented.model import RentedNode, RentedSite
from stacks.sites.rented.present import Rental
from stacks.sites.rented.user_data import user_data


def machines(sites: Sequence[RentedSite], nodes: Sequence[RentedNode], stack: str, rental: Rental) -> Machines:
    """Return the machines of all sites of one kind."""
    hosts: dict[str, Host] = {}
    facts: dict[str, pulumi.Output[dict[str, Any]]] = {}
    for site in sites:
        account = CloudAccount(site, rental)
        for node in nodes:
            if node.site == site.name:
                machine = RentedMachine(site, node, stack, account, rental)
                hosts[node.name], facts[node.name] = machine.as_host(site, node, rental), machine.facts
    return Machines(hosts, rented=facts)


class CloudAccount(pulumi.ComponentResource):
    """A site's part of an account: the owner's tag of its machines, and the log-in key.

    Its deletion, after that of all machines, ends the rent of any other machine with this tag.
    """

    def __init__(self, site: RentedSite, rental: Rental) -> None:
        super().__init__("tailrack:rented:CloudAccount", site.name)
        self.access = {"cloud": site.kind, "base_url": site.base_url, "api_key": rental.api_key}
        label = StepLabel(f"{site.name}-account", "", f"{site.name}: prepare the cloud account")
        self.resource = local.Command(
            f"{site.name}-account",
            # Without paths of a checkout or a Python: the stack may be destroyed on another machine.
            create=label.on("exec python3 -m stacks.rental.account up"),
            delete=label.on("exec python3 -m stacks.rental.account down"),
            stdin=pulumi.Output.secret(json.dumps({**self.access, "public_key": site.login_key})),
            logging=local.Logging.NONE,
            # The last output has the owner, which must not change.
            add_previous_output_in_env=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.facts: pulumi.Output[dict[str, Any]] = pulumi.Output.unsecret(self.resource.stdout).apply(parse_result)
        self.register_outputs({})


class RentedMachine(pulumi.ComponentResource):
    """One rented machine. `facts`: id, address, type, region, price, what was tried, and the owner's tag."""

    def __init__(self, site: RentedSite, node: RentedNode, stack: str, account: CloudAccount, rental: Rental) -> None:
        super().__init__("tailrack:rented:RentedMachine", node.name)
        self._key = first_key(node.name, self)
        lost, moved = rental.lost.get(node.name, ""), rental.moved.get(node.name, "")
        changed = {"moved": moved} if moved else {}
        request = {
            **account.access,
            "stack": stack,
            "site": site.name,
            "node": node.name,
            "name": node.name,
            "tags": dict(site.tags),
            "offers": [{"type": kind, "region": region} for kind, region in node.offers],
            "image": site.image,
            "boot_seconds": site.boot_minutes * 60,
            **({"max_price_per_hour": limit} if (limit := site.max_price_per_hour) else {}),
            **({"options": site.options} if site.options else {}),
            **({"lost": lost} if lost else {}),
            **changed,
        }

        def stdin(values: Mapping[str, Any]) -> str:
            pair = values["key"]
            data = user_data(site.login_key, pair["private"], pair["public"], root=site.user == "root")
            return json.dumps({**request, **values["account"], "user_data": data}, sort_keys=True)

        label = StepLabel(f"{node.name}-machine", "", f"{node.name}: rent a machine")
        self._resource = local.Command(
            f"{node.name}-machine",
            create=label.on("exec python3 -m stacks.rental.machine up"),
            delete=label.on("exec python3 -m stacks.rental.machine down"),
            stdin=as_output({"key": self._key, "account": account.facts}, stdin, hidden=True),
            logging=local.Logging.NONE,
            # Its id: a changed input does not give back a machine that is in use.
            add_previous_output_in_env=True,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[account.resource]),
        )
        self._result: pulumi.Output[dict[str, Any]] = pulumi.Output.unsecret(self._resource.stdout).apply(parse_result)
        self.facts = as_output(
            {"facts": self._result, "account": account.facts},
            lambda values: {**values["facts"], "owner": values["account"]["owner"], "lost": lost, **changed},
        )
        self.register_outputs({})

    def as_host(self, site: RentedSite, node: RentedNode, rental: Rental) -> Host:
        """Return the machine as a Host, whose connection is verified with the host key that the machine creates."""
        result = self._result
        first = Connection(
            host=result["address"],
            port=result.apply(lambda facts: int(facts.get("port", SSH_PORT))),
            user=site.user,
            private_key=pulumi.Output.secret(site.private_key) if site.private_key else None,
            host_key=pulumi.Output.unsecret(self._key).apply(lambda pair: str(pair["public"])),
        )
        connection = own_key_connection(node.name, first, self._resource, result["id"], self, pod=node.pod)
        price = pulumi.Output.from_input(node.price) if node.price else result.apply(rental.price)
        return host_of(node, connection, deleted_with=self._resource, price=price)
