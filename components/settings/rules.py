"""Rules between keys that several sections have. Each function reports what breaks its rule."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from components.settings.mask_secrets import MASK
from components.settings.problems import Report, Stack, secret_command, suggest
from components.settings.section import Section, keys_of


def _written(section: Section, name: str, report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield the name at a key, each name in its list, or each key of its mapping: its path, itself, and it as shown."""
    value: Any = getattr(section, name)
    if isinstance(value, Mapping):
        yield from ((report.at(section, name, item), item, "") for item in value)
        return
    single = isinstance(value, str)
    for index, item in enumerate([value] if single else value or ()):
        path = report.at(section, name) if single else report.at(section, name, index)
        yield path, item, f"{report.value(path, item)} "


def check_known(
    section: Section, name: str, valid: Collection[str], problem: str, breaks: str, report: Report, fix: str = ""
) -> None:
    """Report names at a key that are not valid. `fix` is the remedy if no name is."""
    for path, item, shown in _written(section, name, report):
        if item not in valid:
            remedy = fix if fix and not valid else partial(suggest, item, valid)
            report.add(path, shown + problem, breaks, remedy)


def check_sites(section: Section, name: str, breaks: str, stack: Stack, report: Report) -> None:
    """Report names at a key that no site of the stack has, and those that its list has twice."""
    check_known(section, name, stack.sites, "is not a site of this stack", breaks, report)
    check_once(section, name, report)


def check_once(section: Section, name: str, report: Report) -> None:
    """Report sites that a list contains a second time."""
    seen: set[str] = set()
    for path, item, shown in _written(section, name, report):
        if item in seen:
            breaks = "one of them is probably a mistake for another one"
            report.add(path, f"{shown}is in the list twice", breaks, "remove or correct it")
        seen.add(item)


def check_unique(
    sections: Iterable[Section],
    name: str,
    problem: str,
    breaks: str,
    report: Report,
    fix: str = "rename one of them",
    others: Mapping[Any, str] | None = None,
) -> dict[Any, str]:
    """Report values of a key, in any case, that two sections have. Return the place of each value's first section.

    GitHub and opkssh ignore the case, and all other names are in lower case.

    problem   completes "VALUE ..."; `{}` in it is the place of the first section
    others    places of other sections, by their values
    """
    places = dict(others or {})
    for section in sections:
        own, value = report.place(section), getattr(section, name)
        value = value.lower() if isinstance(value, str) else value
        if value is not None and (first := places.setdefault(value, own)) != own:
            report.bad((section, name), problem.format(first), breaks, fix)
    return places


def check_both(section: Section, one: str, other: str, breaks: str, report: Report) -> None:
    """Report one of two keys without the other."""
    for name, partner in ((one, other), (other, one)):
        if getattr(section, name) and not getattr(section, partner):
            key, path = keys_of(type(section))[partner], report.at(section, partner)
            fix = key.remedy(path) if key.secret else f"write {partner} too"
            report.add((section, name), f"is set without {partner}", breaks, fix)


Kinds = Mapping[str, Collection[str]]


def check_kinds(
    section: Section, kind: str, kinds: Kinds, breaks: str, report: Report, by: str = "kind", required: str = ""
) -> None:
    """Report keys of a section that are of other kinds than it. `kinds` has the kinds of each such key.

    by          the key that decides about the kind
    required    the consequence if one of these keys is missing; empty if none is required
    """
    for name in kinds:
        given = name in section.model_fields_set
        if given and kind not in kinds[name]:
            fix = f"remove it, or write {by}: {' or '.join(kinds[name])}"
            report.add((section, name), f"is not a key of {by} {kind}", breaks, fix)
        elif required and not given and kind in kinds[name]:
            path = report.at(section, name)
            report.add(path, f"is missing for {by} {kind}", required, keys_of(type(section))[name].remedy(path))


def check_local(section: Section, name: str, breaks: str, stack: Stack, report: Report) -> None:
    """Report a folder on the share."""
    folder = getattr(section, name)
    if folder is not None and any(PurePosixPath(folder).is_relative_to(place) for place in stack.share):
        report.bad((section, name), "is on the share", breaks, "write a folder on a local disk of the nodes")


def check_on(place: tuple[object, ...], role: str, enabled: bool, breaks: str, report: Report) -> None:
    """Report a section or key, at the parts of its path, that needs a role which is off."""
    if not enabled:
        fix = f"remove it, or set tailrack:{role}.enabled to true"
        report.add(place, f"is set while {role} is off", breaks, fix)


def check_secrets(sections: Iterable[Section], report: Report) -> None:
    """Report secrets that are plain text in the config. A host's own and the same one of its site count once."""
    seen: dict[tuple[object, ...], str] = {}
    for section in sections:
        for name, key in keys_of(type(section)).items():
            value = getattr(section, name) if key.secret and name in section.model_fields_set else None
            # A mapping's secrets are set one by one.
            for item, secret in value.items() if isinstance(value, Mapping) else [("", value)] if value else ():
                path = report.at(section, name, *filter(None, [item]))
                first = seen.setdefault((path.partition(".")[0], name, secret), path) == path
                if first and not report.hides(path):
                    breaks = "anyone who reads the file or the repository's history could use it"
                    remedy = f"run: {secret_command(path)}" if item else key.remedy(path)
                    report.add(path, f"{MASK} is plain text in the config", breaks, f"{key.help.leaked}, then {remedy}")
