"""The account at the played cloud: its machines, keys, capacity and faults. Without HTTP and without Docker."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

BOOTING, ACTIVE, ENDED = "booting", "active", "ended"


@dataclass
class Machine:
    """A rented machine.

    user_data    of cloud-init; of a pod: its start command and environment, as JSON
    taken_back   whether the cloud ended it
    """

    number: int
    name: str
    type: str
    region: str
    tags: Mapping[str, str]
    public_key: str
    user_data: str
    state: str = BOOTING
    address: str = ""
    taken_back: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(16))


class Machines(Protocol):
    """The source of real machines behind the account."""

    def start(self, machine: Machine, *, own_host_key: bool) -> str:
        """Start a machine and return its address, with `:PORT` if its SSH port is not 22.

        own_host_key   with another host key than its user data says
        """

    def restart(self, machine: Machine) -> None:
        """Restart a machine."""

    def remove(self, machine: Machine) -> None:
        """Remove a machine."""


@dataclass
class Faults:
    """The faults of the next machines and calls; a count is used up by machines.

    boot_seconds      until a machine is active
    quota             most machines at once
    launch_seconds    least time between two launches; a launch before gets 429
    """

    boot_seconds: float = 0.0
    never_boots: int = 0
    boots_twice: int = 0
    other_host_key: int = 0
    quota: int = 100
    launch_seconds: float = 0.0

    def use(self, name: str) -> bool:
        """Return whether a counted fault is due, and use it once."""
        count = int(getattr(self, name))
        setattr(self, name, max(count - 1, 0))
        return count > 0


class NoCapacity(Exception):
    """No such machine in the region."""


class QuotaExceeded(Exception):
    """The account has too many machines."""


class TooFast(Exception):
    """A launch too soon after another: the seconds to wait."""


class Account:
    """One account.

    prices     cents per hour by type
    capacity   free machines by type and region; none if it is not there
    launched   number of machines that were rented in all
    """

    def __init__(self, machines: Machines, prices: Mapping[str, int]) -> None:
        self.prices = dict(prices)
        self.capacity: dict[tuple[str, str], int] = {}
        self.faults = Faults()
        self.keys: dict[str, tuple[str, str]] = {}  # by id: name, public key
        self.launched = 0
        self.on_launch: Callable[[Machine], None] = lambda machine: None
        self._machines, self._all = machines, dict[str, Machine]()
        self._lock, self._last_launch, self._number = threading.RLock(), 0.0, 0
        self._threads: list[threading.Thread] = []

    def bill(self) -> list[Machine]:
        """Return the machines that cost money now."""
        with self._lock:
            return [machine for machine in self._all.values() if machine.state != ENDED]

    def machines(self) -> list[Machine]:
        """Return all machines, ended ones too."""
        with self._lock:
            return list(self._all.values())

    def launch(self, name: str, type_: str, region: str, tags: Mapping[str, str], key: str, user_data: str) -> Machine:
        """Rent a machine. Raises NoCapacity, QuotaExceeded or TooFast."""
        with self._lock:
            wait = self._last_launch + self.faults.launch_seconds - time.monotonic()
            if self._last_launch and wait > 0:
                raise TooFast(wait)
            if len(self.bill()) >= self.faults.quota:
                raise QuotaExceeded
            if self.capacity.get((type_, region), 0) < 1:
                raise NoCapacity
            self.capacity[type_, region] -= 1
            self._last_launch = time.monotonic()
            self._number += 1
            machine = Machine(self._number, name, type_, region, dict(tags), key, user_data)
            self._all[machine.id] = machine
            self.launched += 1
        thread = threading.Thread(target=self._boot, args=[machine], daemon=True)
        self._threads.append(thread)
        thread.start()
        self.on_launch(machine)
        return machine

    def end(self, id_: str, *, taken_back: bool = False) -> None:
        """End the rent of a machine; KeyError for an unknown one."""
        with self._lock:
            machine = self._all[id_]
            if machine.state == ENDED:
                return
            machine.state, machine.taken_back = ENDED, taken_back
            place = machine.type, machine.region
            self.capacity[place] = self.capacity.get(place, 0) + 1
        self._machines.remove(machine)

    def restart(self, id_: str) -> None:
        """Restart a machine, as its owner can in the cloud's console."""
        self._machines.restart(self._all[id_])

    def close(self) -> None:
        """End everything, for the end of a test."""
        for machine in self.bill():
            self.end(machine.id)
        for thread in self._threads:
            thread.join(60)
        for machine in self.machines():
            self._machines.remove(machine)

    def _boot(self, machine: Machine) -> None:
        with self._lock:
            own, twice, never = (self.faults.use(name) for name in ("other_host_key", "boots_twice", "never_boots"))
            ready = time.monotonic() + self.faults.boot_seconds
        if never:
            return
        address = self._machines.start(machine, own_host_key=own)
        time.sleep(max(ready - time.monotonic(), 0))
        with self._lock:
            if machine.state == ENDED:
                return
            machine.address, machine.state = address, ACTIVE
        if twice:
            self._machines.restart(machine)


class Api:
    """An API of a cloud, for one account.

    refusals   answers to a wrong key (401), to one that may not do this (403), and to a call that came too soon (429)
    """

    prefix: ClassVar[str]
    refusals: ClassVar[Mapping[int, tuple[int, Any]]]

    def __init__(self, account: Account) -> None:
        self._account = account
