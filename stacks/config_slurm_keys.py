"""Which keys of slurm.conf a stack config may set: those that Slurm knows and tailrack does not set itself."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache

from slurmutils import SlurmConfig

from stacks.config_draft import Draft
from stacks.config_problems import Report, below
from stacks.config_types import words

# tailrack derives these from the stack: another value would cut nodes off or undo what keeps jobs inside a site.
OWNED_KEYS = words(
    """authinfo authtype clustername communicationparameters credtype downnodes frontendname grestypes hashplugin
    include jobsubmitplugins maxnodecount nodename nodeset partitionname proctracktype schedulerparameters
    slurmctldaddr slurmctldhost slurmctldparameters slurmctldpidfile slurmctldport slurmdpidfile slurmdport
    slurmdspooldir slurmduser slurmuser srunportrange statesavelocation taskplugin topologyplugin treewidth"""
)
_BY_CGROUPS = words("proctracktype taskplugin")
# Keys of Slurm 24.11 that slurmutils does not have yet (slurm.conf(5)), and its words for lines that are no keys.
_MORE_KEYS = words("DataParserParameters EpilogTimeout PrologTimeout TLSType")
_NO_KEYS = words("down_nodes frontend_nodes nodes nodesets partitions")


@lru_cache
def known_keys() -> Mapping[str, str]:
    """Keys that slurm.conf may have, from lower case (Slurm ignores case) to a readable spelling."""
    fields = [name for name in SlurmConfig.__annotations__ if name not in _NO_KEYS]
    spelt = ["".join(word.capitalize() for word in name.split("_")) for name in fields]
    return {key.lower(): key for key in (*spelt, *_MORE_KEYS)}


def check_settings(slurm: Draft, report: Report) -> None:
    """Report keys that are tailrack's own, unknown to Slurm, or there twice."""
    settings = slurm.raw.get("settings")
    if not isinstance(settings, Mapping):
        return
    known = known_keys()
    seen: set[str] = set()
    for key in settings:
        name, path = str(key).lower(), below(slurm.at("settings"), str(key))
        if name in OWNED_KEYS:
            fix = "set tailrack:slurm.cgroups instead" if name in _BY_CGROUPS else "take it out"
            breaks = "another value would cut nodes off from the head node, or let jobs out of their site"
            report.add(path, "is a key that tailrack sets itself", breaks, fix)
        elif name not in known:
            near = difflib.get_close_matches(name, known.keys() - OWNED_KEYS, n=1)
            fix = f"did you mean '{known[near[0]]}'?" if near else "see man slurm.conf for the keys there are"
            report.add(path, "is not a key of slurm.conf", "slurmctld would not start", fix)
        elif name in seen:
            breaks = "Slurm ignores case, and would take the value of either"
            report.add(path, "is there twice, in two spellings", breaks, "take one of them out")
        seen.add(name)
