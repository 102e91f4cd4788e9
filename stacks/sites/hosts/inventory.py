"""A hosts site as it is written, to one mapping a machine: files of hosts, ranges, and what a site says for all.

Works on raw values; what is wrong with a value itself is found later, at the place that the user wrote it.
"""

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from components.settings.draft import meant
from components.settings.problems import Report, below, shown
from components.settings.section import keys_of
from stacks.sites.hosts.known_hosts import KnownHosts
from stacks.sites.hosts.model import HostConfig
from stacks.sites.hosts.presets import PRESETS
from stacks.sites.kind import UNREAD
from stacks.yaml_file import FileError, plain_file, read_yaml

OPENED = "whoever reads the file, or the repository's past, can open the key"
MOST_HOSTS = 65536  # of a site; Slurm's own limit
# No name or address is longer than what stands around the numbers here.
_RANGE = re.compile(r"([^\[\]]{0,253})\[([0-9,-]+)\]([^\[\]]{0,253})")
_KEYS = frozenset({"private_key_file", "agent"})  # where a log-in's key is: one of them
PASSPHRASE = "private_key_passphrase"  # noqa: S105 - no passphrase
_SHARED = ("user", "port", PASSPHRASE, *sorted(_KEYS))  # what a site may say for all of its hosts
_LISTS, _TRUTH = frozenset({"features"}), {"true": True, "false": False}


class Placed(dict[str, object]):
    """A mapping that was written elsewhere than where it is read; `place` is the path that messages give it."""

    def __init__(self, values: Mapping[str, object], place: str) -> None:
        super().__init__(values)
        self.place = place


def complete(raw: Mapping[str, object], path: str, base_dir: Path, report: Report) -> Mapping[str, object]:
    """The site with every host in `hosts`: those of its file too, ranges written out, and what it says for all.

    path       the site's place in the config
    base_dir   where relative paths start
    """
    written = raw.get("hosts")
    hosts = list(written) if isinstance(written, list | tuple) else []
    listed = [(host, below(below(path, "hosts"), index)) for index, host in enumerate(hosts)]
    name = raw.get("hosts_file")
    if isinstance(name, str) and not name.isprintable():
        return {**raw, "hosts": UNREAD}  # its field says so
    if isinstance(name, str):
        rows = _rows(_inside(base_dir, name), below(path, "hosts_file"), report)
        if rows is None:
            return {**raw, "hosts": UNREAD}
        for row, place in rows:
            if isinstance(row, Mapping) and row.get(PASSPHRASE) is not None:
                fix = "change it (ssh-keygen -p -f FILE), and write it for the site or the host as a secret"
                report.add(below(place, PASSPHRASE), "[secret] is plain text in a file", OPENED, fix)
        listed += rows
    elif written is not None and not isinstance(written, list | tuple):
        return raw
    shared = {key: raw[key] for key in _SHARED if raw.get(key) is not None}
    if (user := PRESETS.get(str(raw.get("preset")))) and "user" not in shared:
        shared["user"] = user
    keys = KnownHosts.of(base_dir, raw.get("known_hosts_file"))
    made: list[object] = []
    for host, place in listed:
        for one in _written_out(host, place, report) if isinstance(host, Mapping) else [host]:
            if isinstance(one, Mapping):
                own = {key: value for key, value in one.items() if value is not None}
                own = {key: value for key, value in shared.items() if not (key in _KEYS and _KEYS & own.keys())} | own
                if "host_key" not in own and (found := keys.key_of(own.get("address"), own.get("port", 22))):
                    own["host_key"] = found
                one = Placed(own, place)
            made.append(one)
        if len(made) > MOST_HOSTS:
            break  # too many nodes are reported with those of the other sites
    return {**raw, "hosts": made} if listed or written is not None else raw


def _inside(base_dir: Path, name: str) -> Path:
    try:
        return base_dir / Path(name).expanduser()
    except RuntimeError:  # ~name of nobody known
        return base_dir / name


def _rows(file: Path, path: str, report: Report) -> list[tuple[object, str]] | None:
    """The hosts of a file, each with its place; None where it cannot be read, which is reported."""
    try:
        # By the name behind a link: a message shows the first line of a CSV file, which another file may not be shown.
        return _of_csv(file, path) if Path(os.path.realpath(file)).suffix.lower() == ".csv" else _of_yaml(file, path)
    except (FileError, OSError, UnicodeDecodeError, csv.Error) as error:
        why = str(error) if isinstance(error, FileError) else f"{shown(file)} cannot be read ({type(error).__name__})"
        fix = "write a CSV file with a line of names, or a YAML file with a list `hosts`; both have the keys of `hosts`"
        report.add(path, why, "the site's machines would not be known", fix)
        return None


def _of_csv(file: Path, path: str) -> list[tuple[object, str]]:
    text = plain_file(file).decode("utf-8-sig")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    names: list[str] = []
    known = keys_of(HostConfig).keys()
    rows: list[tuple[object, str]] = []
    for cells in reader:
        if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
            continue
        if not names:
            names = [cell.strip() for cell in cells]
            if len(set(names)) < len(names):
                raise FileError(f"{file.name} line {reader.line_num} names a column twice")
            for name in names:
                if name not in known:
                    what = f"{file.name} line {reader.line_num} names a column {shown(name)}, which is no key of a host"
                    raise FileError(f"{what}: {meant(name, known)}")
            for name in sorted({"name", "address"} - {*names}):
                raise FileError(f"{file.name} line {reader.line_num} has no column {name}")
            continue
        if len(cells) > len(names):
            raise FileError(f"{file.name} line {reader.line_num} has more cells than the first line has names")
        row = {name: _cell(name, cell.strip()) for name, cell in zip(names, cells, strict=False) if cell.strip()}
        rows.append((row, f"{path}[line {reader.line_num}]"))
    return rows


def _cell(name: str, cell: str) -> object:
    if name in _LISTS:
        return cell.split()
    return int(cell) if name == "port" and re.fullmatch(r"[0-9]{1,6}", cell) else _TRUTH.get(cell.lower(), cell)


def _of_yaml(file: Path, path: str) -> list[tuple[object, str]]:
    content = read_yaml(file)
    hosts = content.get("hosts")
    if not isinstance(hosts, list) or len(content) != 1:
        raise FileError(f"{file.name} has no list `hosts` alone")
    return [(host, f"{path}.hosts[{index}]") for index, host in enumerate(hosts)]


def _written_out(host: Mapping[str, object], place: str, report: Report) -> Iterator[Mapping[str, object]]:
    """One host, or each of a range: name n[1-8] with addresses 10.0.0.[1-8], or with a list of them."""
    names = _each(host.get("name"))
    if names is None:
        yield host
        return
    address = host.get("address")
    addresses = list(address) if isinstance(address, list | tuple) else _each(address)
    if addresses is None or len(addresses) != len(names):
        there = "one address" if addresses is None else f"{len(addresses)} addresses"
        what = f"{shown(host['name'])} is {len(names)} names, and there is {there}"
        fix = f"write {len(names)} addresses, as a list or as a range such as 10.0.0.[1-{len(names)}]"
        report.add(below(place, "address"), what, "nobody knows which machine has which name", fix)
        return
    if "host_key" in host and len(names) > 1:
        fix = "leave host_key out, and name a known_hosts_file for the site"
        report.add(below(place, "host_key"), "one key for many hosts", "each machine has a key of its own", fix)
        return
    for name, one in zip(names, addresses, strict=True):
        yield {**host, "name": name, "address": one}


def _each(text: object) -> list[object] | None:
    """The texts that a range stands for, in its order: `n[1-3,7]`, `n[01-64]`; None where it is no range."""
    found = _RANGE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    before, inside, after = found.groups()
    numbers: list[str] = []
    for part in inside.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (re.fullmatch(r"[0-9]{1,9} [0-9]{1,9}", f"{first} {last}") and int(first) <= int(last)):
            return None
        if int(last) - int(first) + len(numbers) >= MOST_HOSTS:
            return None
        width = len(first) if first.startswith("0") else 0
        numbers += [f"{number:0{width}}" for number in range(int(first), int(last) + 1)]
    return [f"{before}{number}{after}" for number in numbers]
