"""Keys of sites and pools whose machines the stack rents from a cloud, and the nodes of such a site."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr

from components.roles.network.tailnet.settings import is_here
from components.settings.cluster import Head
from components.settings.money import MOST, Price
from components.settings.problems import Report, Stack, secret_command
from components.settings.rules import check_known
from components.settings.section import Help, Section, key
from components.settings.types import Number, Whole, full, must, without_slash
from stacks.sites.hosts.ssh_types import Login
from stacks.sites.kind import NodeSpec
from stacks.sites.login_key import SiteOfNewMachines
from stacks.sites.pools import GpuPool, check_not_empty, new_nodes

WARN = "warn"

ApiKey = Annotated[SecretStr, must(full(r"[!-~]+"), "is empty, or has spaces, line breaks or other letters than ASCII")]
ApiKeys = Annotated[
    dict[str, ApiKey],
    Field(description="API keys of the clouds whose machines the stack rents, by kind of site."),
    Help(
        "a mapping of kinds of site to API keys",
        "run: pulumi config set --path --secret tailrack:api_keys.KIND",
        leaked="revoke this key, create another",
    ),
]
TypeName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="The machine type, by the cloud's name."),
    Help("the name of a machine type", "write a name from the cloud's page of types and prices"),
]
RegionName = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$"), Help("the name of a region", "write one such as us-east-1")
]
IMAGE_HELP = Help("the name of an image", "leave it out, or copy the name from the cloud's console")
ImageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$"), IMAGE_HELP]
TagName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-:]{1,54}$")]
TagValue = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/ -]{0,100}$")]


class Attempt(Section):
    """A type, a region, or both, to try when the cloud has no capacity for the others."""

    type: TypeName | None = key(default_text="the pool's", default=None)
    """The machine type, by the cloud's name."""
    region: RegionName | None = key(default_text="the site's", default=None)
    """The region."""


class RentedPool(GpuPool):
    """A pool of rented machines, which can be rented in several places."""

    absent: ClassVar[Mapping[str, str]] = {"spot": "delete it: this cloud has no spot machines; kind aws has them"}
    type: TypeName
    attempts: tuple[Attempt, ...] = key(
        "a list such as [{region: us-east-1}, {region: us-west-2}]",
        "write a list of mappings with type, region or both",
        "a node could only be rented in one place",
        "the pool's type in the site's region",
        alias="try",  # a keyword of Python
        default=(),
    )
    """Types and regions to try in turn where a cloud has no capacity. Leave `gpu` out if their GPUs differ."""


class RentedHead(Section):
    """The head node's machine; required if it is at this site."""

    type: TypeName
    price_per_hour: Price | None = None
    """Price per hour of the machine; default: the site's price, else the cloud's."""


class RentedSite(SiteOfNewMachines):
    """A site of machines that programs in stacks/rental rent, which get a log-in key and tags."""

    image: ImageName = key(default_text="the cloud's default", default="")
    """The image, by the cloud's name."""
    user: Login = "ubuntu"
    """The image's account for log-ins: root, or one with password-less sudo."""
    tags: dict[TagName, TagValue] = key("a mapping of words", "write {team: vision}", default={})
    """Tags for every machine."""
    region: RegionName
    """The region; `try` of a pool can name others."""
    fewer: Literal["fail", "warn"] = "fail"
    """If the cloud has no machine for a node: `fail` (its step), or `warn` (leave it out; `make up` tries again)."""
    boot_minutes: Whole = key(ge=1, le=120, default=20)
    """Minutes after which a machine that does not answer SSH is given back, and the next of `try` is rented."""
    base_url: Annotated[
        str,
        must(
            lambda url: not url or (full(r"https?://[^?@#]+")(url) and is_here(url)),
            "is not an address of this machine",
        ),
        without_slash,
    ] = key("an address of this machine", "leave it out", "the API key would go elsewhere", "the cloud's", default="")
    """Address of the cloud's API; for tests, an address of this machine."""
    max_price_per_hour: Number | None = key(fix="write an amount such as 3.5", gt=0, le=MOST, default=None)
    """The most that a machine may cost per hour, in the cloud's currency (USD); dearer places of `try` are left out."""
    pools: tuple[RentedPool, ...] = key(fix="write [{name: h100-, type: TYPE}]", default=())
    """The site's nodes; may be empty at the head node's site."""
    head: RentedHead | None = None

    def check(self, stack: Stack, report: Report) -> None:
        super().check(stack, report)
        check_not_empty(self, self.pools, stack, report)
        if stack.head.site == self.name and self.head is None:
            breaks, fix = "the cloud would not know which machine to rent", "write head: {type: TYPE}"
            report.add((self, "head"), "missing, but the head node is at this site", breaks, fix)
        for pool in self.pools:
            seen = set[tuple[str, str]]()
            for attempt in pool.attempts:
                place = (attempt.type or pool.type, attempt.region or self.region)
                if attempt.type is None and attempt.region is None:
                    breaks, fix = "it would be the same place as the pool's own", "write one or both, or delete it"
                    report.add((attempt,), "names neither a type nor a region", breaks, fix)
                elif place in seen:
                    breaks = "the same place would be tried twice"
                    report.add((attempt,), "is in the list twice", breaks, "delete one of them")
                seen.add(place)

    @property
    def options(self) -> dict[str, Any]:
        """Return the values of the keys that only this kind has, for `Order.options`."""
        return {}


@dataclass(frozen=True)
class RentedNode(NodeSpec):
    """A rented machine. `offers`: types and regions in the order in which to try them."""

    offers: tuple[tuple[str, str], ...]
    cloud_has_price: ClassVar[bool] = True

    def place(self, kind: str) -> str:
        """Return the regions in which it may be rented, for people."""
        return f"{kind} {' or '.join(dict.fromkeys(region for _, region in self.offers))}"


def nodes(site: RentedSite, head: Head) -> list[RentedNode]:
    """Return the nodes of the site, the head node first."""
    shape = site.head
    of_head = {"price": shape.price_per_hour, "offers": ((shape.type, site.region),)} if shape else None
    return new_nodes(RentedNode, site, head, of_head, site.pools, lambda pool: {"offers": _offers(site, pool)})


def _offers(site: RentedSite, pool: RentedPool) -> tuple[tuple[str, str], ...]:
    """Return the types and regions to try, each once."""
    tried = [(attempt.type or pool.type, attempt.region or site.region) for attempt in pool.attempts]
    return tuple(dict.fromkeys(tried or [(pool.type, site.region)]))


def api_keys(keys: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return API keys as plain text, by kind of site."""
    return {kind: value.get_secret_value() for kind, value in keys.items()}


def check_api_keys(
    config: Section, given: Mapping[str, SecretStr], kinds: Collection[str], clouds: Sequence[str], report: Report
) -> None:
    """Report API keys of unknown clouds, and those that are missing for a kind of site. `clouds` rent machines."""
    problem = "is not a kind of site that needs an API key"
    check_known(config, "api_keys", clouds, problem, "it would have no effect", report)
    for kind in clouds:
        if kind in kinds and kind not in given:
            path = report.at(config, "api_keys", kind)
            report.add(path, "missing", "the cloud would reject every call", f"run: {secret_command(path)}")
