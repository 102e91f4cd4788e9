"""Rent one machine, or end its rent: a program that reads one JSON object on stdin (`up` or `down`).

cloud, base_url, api_key   the account
owner, stack, site, node   the machine's tags. `up` first looks for a machine with them: an `up` that was killed between
                           the call and the state has rented one
offers                     types and regions, in the order in which to try them
max_price_per_hour         the most that the machine may cost, in the cloud's currency; missing without a limit
name, tags, key, user_data, image, options   see stacks.rental.cloud.Order
boot_seconds               limit from the call to a machine that answers SSH
lost, moved                id of a machine that is gone, its new address; only make the engine run the program again

`up` prints the machine and what it tried as one JSON object. If the program fails, it prints one sentence and a remedy
on stderr. The output contains no secret.
"""

import json
import os
import random
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks.http_client import ApiError, use_packages
from stacks.rental.api import LONGEST_WAIT
from stacks.rental.cloud import (
    BOOTING,
    GONE,
    READY,
    SSH_PORT,
    TAGS,
    Cloud,
    Instance,
    NoCapacityError,
    Offer,
    Order,
    QuotaError,
)
from stacks.rental.clouds import account

# Seconds between two looks at a machine that boots or ends: the first, the growth, the longest.
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 1.0, 1.3, 10.0
END_SECONDS = 600.0
# A list of machines may lack one that was rented a moment ago.
LIST_DELAY = 5.0
# Lists in a row that may lack a machine before it counts as gone; some clouds accept an order and then drop it.
MOST_MISSING = 10
# A pool of many nodes waits for the cloud's limit of launches: seconds in all, and between two calls.
QUEUE_SECONDS, QUEUE_PAUSE = 3600.0, 5.0
# Answers without a clear result after which the program gives up on an offer.
MOST_UNCLEAR = 4
# pulumi-command passes the resource's last output in this variable.
LAST = "PULUMI_COMMAND_STDOUT"
# A folder for each owner whose machines this checkout rented: one file for each launch whose end is not known.
LAUNCHES = Path(".tailrack/launches")


class RentalError(Exception):
    """No machine: the reason, and what to do."""

    def __init__(self, problem: str, next_step: str) -> None:
        super().__init__(problem)
        self.next_step = next_step


@dataclass(frozen=True)
class Rental:
    """One machine of a stack, in an account.

    own   id of the machine that the last run brought: no run gives it back because it does not answer
    """

    cloud: Cloud
    request: Mapping[str, Any]
    own: str = ""
    answers: Callable[[str, int], bool] = lambda address, port: answers_ssh(address, port)
    wanted: Callable[[], bool] = lambda: True  # whether the engine still waits for the machine

    def up(self) -> dict[str, Any]:
        """Have the machine, and return it. Raises RentalError or ApiError."""
        facts = self._rented()
        self._launch.unlink(missing_ok=True)
        return facts

    def _rented(self) -> dict[str, Any]:
        wanted = [Offer(str(offer["type"]), str(offer["region"])) for offer in self.request["offers"]]
        tried: list[str] = []
        if found := self._found():
            if (found.type, found.region) not in [(offer.type, offer.region) for offer in wanted]:
                raise RentalError(
                    f"{self.node} is a {_place(found)} (id {found.id}), which its pool no longer lists",
                    "write this type and region again (also in `try`), or take the node out of the config, run `make "
                    "up`, and put it back",
                )
            # Its steps report a machine of an earlier run that does not answer.
            in_use = found.id == self.own and found.state == READY and found.address
            if machine := found if in_use else self._boot(found, tried):
                return self._facts(machine, tried)
        quota, refusals = False, list[ApiError]()
        for offer in self._with_capacity(wanted, tried):
            try:
                rented = self._rent(offer, tried)
            except QuotaError as error:
                # Another type or region may have its own quota.
                tried.append(f"{offer}: {error}")
                quota = True
                continue
            except ApiError as error:
                if not error.refused or error.denied:
                    raise
                tried.append(f"{offer}: {error}")
                refusals.append(error)
                continue
            if rented and (machine := self._boot(rented, tried)):
                return self._facts(machine, tried)
        raise RentalError(
            f"no machine for {self.node} at {self.cloud.title}: {'; '.join(tried)}; nothing is rented for it",
            (" and ".join(dict.fromkeys(map(correction, refusals))) + ", or " if refusals else "")
            + "run `make up` again later, or add a type or a region to `try`"
            + ", or raise max_price_per_hour" * any("max_price_per_hour" in reason for reason in tried)
            + ", or ask the cloud for a higher quota" * quota,
        )

    def down(self) -> None:
        """End the rent of every machine of the node, and wait until the cloud says that it ends."""
        end(self.cloud, self._mine, self.node)

    @property
    def node(self) -> str:
        return str(self.request["node"])

    @property
    def _launch(self) -> Path:
        return LAUNCHES / self._owner / self.node

    def _mine(self) -> list[Instance]:
        return [one for one in self.cloud.instances() if one.state != GONE and one.is_of(self._owner, self.node)]

    @property
    def _owner(self) -> str:
        return str(self.request["owner"])

    def _found(self) -> Instance | None:
        """Return the node's machine, and end the rent of others that unclear answers left."""
        machines = sorted(self._mine(), key=lambda one: (one.id != self.own, one.state != READY, one.id))
        if len(machines) > 1:
            give_back(self.cloud, machines[1:], self.node)
        return machines[0] if machines else None

    def _with_capacity(self, wanted: Iterable[Offer], tried: list[str]) -> Iterable[Offer]:
        """Give the offers that the cloud has now, with prices; record the others as tried."""
        present = {(offer.type, offer.region): offer for offer in self.cloud.offers()}
        types, limit = {kind for kind, _ in present}, self.request.get("max_price_per_hour")
        for offer in wanted:
            found = present.get((offer.type, offer.region))
            if found and found.too_dear(limit):
                tried.append(f"{offer}: {self._price(found)} is more than max_price_per_hour, {limit:.10g}")
            elif found and found.available:
                yield found
            elif offer.type not in types:
                tried.append(f"{offer}: there is no such type")
            else:
                tried.append(f"{offer}: no capacity")

    def _price(self, offer: Offer) -> str:
        if offer.price is None:
            return "an unknown price"
        return f"{offer.price:.10g} {self.cloud.currency} an hour"

    def _rent(self, offer: Offer, tried: list[str]) -> Instance | None:
        order = Order(
            name=str(self.request["name"]),
            type=offer.type,
            region=offer.region,
            tags=self._tags(),
            key=str(self.request["key"]),
            user_data=str(self.request["user_data"]),
            image=str(self.request.get("image", "")),
            options=self.request.get("options", {}),
        )
        until, unclear = time.monotonic() + QUEUE_SECONDS, 0
        while unclear < MOST_UNCLEAR:
            # Immediately before the call: after a long wait, the engine may be gone and a `destroy` be over.
            self._refuse_alone()
            self._launch.parent.mkdir(parents=True, exist_ok=True)
            self._launch.touch()
            try:
                if machine := self.cloud.rent(order):
                    return Instance(machine, BOOTING, offer.type, offer.region, price=offer.price)
                return self._accepted(offer)
            except NoCapacityError as error:
                tried.append(f"{offer}: no capacity" + (f" ({error})" if str(error) else ""))
                return None
            except ApiError as error:
                if error.too_soon and time.monotonic() < until:
                    # Not all nodes at the same moment.
                    time.sleep(min(error.retry_after or QUEUE_PAUSE, LONGEST_WAIT) * random.uniform(1, 1.5))  # noqa: S311
                    continue
                if error.accepted:
                    return self._accepted(offer)
                if not error.unclear:
                    raise
                problem, unclear = str(error), unclear + 1
            time.sleep(LIST_DELAY)
            if found := self._found():
                return found
        tried.append(f"{offer}: {problem}")
        return None

    def _accepted(self, offer: Offer) -> Instance:
        """Return the machine of an order that the cloud accepted without a readable id: never order it twice."""
        for _ in range(MOST_MISSING):
            time.sleep(LIST_DELAY)
            if found := self._found():
                return found
        raise RentalError(
            f"{self.cloud.title} accepted the order of {offer} for {self.node}, and lists no machine with its tags",
            f"look for {self.request['name']} in the cloud's console: if it is there, run `make up` again, which finds "
            "it by its tags; if not, the same command rents another",
        )

    def _refuse_alone(self) -> None:
        """Stop if the engine was killed: its next run finds the machine, and a `destroy` must not miss one."""
        if not self.wanted():
            raise RentalError("the run that wanted the machine has ended", "run `make up` or `make down` again")

    def _tags(self) -> dict[str, str]:
        own = {tag: str(self.request[tag.partition(":")[2]]) for tag in TAGS}
        return {**self.request["tags"], **own}

    def _boot(self, machine: Instance, tried: list[str]) -> Instance | None:
        """Return the machine when it answers SSH. If it does not, end its rent and record that as tried."""
        limit = float(self.request["boot_seconds"])
        began, pause, seen, missing = time.monotonic(), FIRST_PAUSE, machine, 0
        while time.monotonic() < began + limit:
            self._refuse_alone()
            present = {one.id: one for one in self.cloud.instances()}.get(machine.id)
            # A list may lack a new machine for a while.
            missing = 0 if present else missing + 1
            if missing > MOST_MISSING or (present and present.state == GONE):
                give_back(self.cloud, [machine], self.node)
                tried.append(f"{_place(machine)}: the cloud took it back while it booted{self._cost(machine, began)}")
                return None
            seen = present or seen
            if seen.state == READY and seen.address and self.answers(seen.address, seen.port):
                return seen
            time.sleep(pause)
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
        if machine.id == self.own:
            raise RentalError(
                f"{self.node}: its machine {machine.id} at {self.cloud.title} is not ready after {limit / 60:.3g} min",
                "start it in the cloud's console, or end it there, then run `make up` again",
            )
        give_back(self.cloud, [machine], self.node)
        state = "did not answer SSH" if seen.state == READY else "did not boot"
        tried.append(
            f"{_place(machine)}: {state} within {limit / 60:.3g} min, so its rent was ended{self._cost(machine, began)}"
        )
        return None

    def _cost(self, machine: Instance, began: float) -> str:
        """Return the cost of a machine that was given back; empty without a price."""
        if machine.price is None:
            return ""
        amount = machine.price * (time.monotonic() - began) / 3600
        return f" (about {amount:.2f} {self.cloud.currency})"

    def _facts(self, machine: Instance, tried: Sequence[str]) -> dict[str, Any]:
        price = machine.price
        return {
            "id": machine.id,
            "address": machine.address,
            **({} if machine.port == SSH_PORT else {"port": machine.port}),
            "type": machine.type,
            "region": machine.region,
            "price_per_hour": price,
            "currency": self.cloud.currency,
            "tried": list(tried),
        }


def end(cloud: Cloud, mine: Callable[[], Sequence[Instance]], name: str) -> int:
    """End the rent of machines until the cloud lists none; return their number. Raises RentalError at a limit."""
    until, pause, ended = time.monotonic() + END_SECONDS, FIRST_PAUSE, set[str]()
    while machines := mine():
        if time.monotonic() > until:
            ids = ", ".join(machine.id for machine in machines)
            raise RentalError(
                f"{cloud.title} still lists {ids} of {name}, {END_SECONDS / 60:.0f} min after it was asked to end it",
                "end it in the cloud's console, then run the same command again",
            )
        give_back(cloud, machines, name)
        ended |= {machine.id for machine in machines}
        time.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
    return len(ended)


def give_back(cloud: Cloud, machines: Sequence[Instance], name: str) -> None:
    """End the rent of machines. Raises RentalError that names those that still cost money."""
    try:
        cloud.end([machine.id for machine in machines])
    except ApiError as error:
        ids, cause = ", ".join(machine.id for machine in machines), str(error)
        right = "give the API key the right to end machines, or " if error.denied else ""
        raise RentalError(
            f"{name}: {cloud.title} did not end the rent of {ids}, which costs money until it ends: {cause}",
            f"{right}end it in the cloud's console, then run the same command again",
        ) from None


def answers_ssh(address: str, port: int = SSH_PORT) -> bool:
    """Return whether an SSH server greets at an address."""
    try:
        with socket.create_connection((address, port), timeout=5) as connection:
            connection.settimeout(5)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def explain(error: ApiError | RentalError, cloud: str, node: str, key: str) -> str:
    """Return an error and its remedy for stderr."""
    if isinstance(error, RentalError):
        return f"{error}\nnext: {error.next_step}\n"
    if error.denied:
        command = f"pulumi config set --path --secret tailrack:api_keys.{key}"
        right = "give the key the right to this call in the cloud's console, or set another: " * (error.status == 403)
        return (
            f"{node}: {cloud} does not accept the API key for this call: {error}\n"
            f"next: {right}{command}, then `make up`\n"
        )
    step = f"{correction(error)}, then run" if error.refused else "run"
    return f"{node}: {cloud}'s API failed: {error}\nnext: {step} the same command again\n"


# The config's keys, by the words of clouds for them.
_KEYS = {
    "image": r"\bimage",
    "private_key_file": r"ssh.?key|public.?key",
    "tags": r"\btags?\b",
    "region": r"region|data ?center",
    "disk_gb or volume_gb": r"\b(disk|volume|storage)\b",
    "type": r"\b(size|type|gpu|plan)\b",
}


def correction(error: ApiError) -> str:
    """Return how to correct an order that a cloud refuses."""
    sentence = str(error)
    if error.status == 402 or re.search("payment|balance|billing", sentence, re.I):
        return "settle the account's payment in the cloud's console"
    keys = [key for key, words in _KEYS.items() if re.search(words, sentence, re.I)]
    return (
        f"correct `{'` or `'.join(keys[:1]) or 'image`, `type`, `region` or `tags'}` of the site or pool in the config"
    )


def _place(machine: Instance) -> str:
    return f"{machine.type} in {machine.region}"


def main(action: str, text: str) -> int:
    """Rent or return the machine; return the exit status."""
    request: dict[str, Any] = json.loads(text)
    cloud = account(request["cloud"], request["base_url"], request["api_key"])
    engine = os.getppid()
    own = json.loads(os.environ.get(LAST) or "{}").get("id", "")
    rental = Rental(cloud, request, own, wanted=lambda: os.getppid() == engine)
    try:
        if action == "down":
            rental.down()
        else:
            sys.stdout.write(json.dumps(rental.up()) + "\n")
    except (ApiError, RentalError) as error:
        sys.stderr.write(explain(error, cloud.title, rental.node, request["cloud"]))
        return 1
    return 0


if __name__ == "__main__":
    use_packages()
    sys.exit(main(sys.argv[1], sys.stdin.read()))
