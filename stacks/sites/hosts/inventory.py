"""Expand a hosts site to one mapping per machine: files of hosts, name ranges, and the site's common keys.

This works on raw values. The reader checks the values later and reports them at the place where the user wrote them.
"""

import csv
import io
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from components.settings.mask_secrets import MASK
from components.settings.problems import Report, child_path, shown, suggest
from components.settings.section import keys_of
from stacks.sites.hosts.known_hosts import KnownHosts
from stacks.sites.hosts.model import HostConfig
from stacks.sites.hosts.other_stacks import hosts_of
from stacks.sites.hosts.presets import PRESETS
from stacks.sites.hosts.ssh_types import PASSPHRASE
from stacks.sites.kind import UNREAD
from stacks.yaml_file import FileError, inside, plain_file, read_yaml

OPENED = "anyone who reads the file or the repository's history could unlock the key"
MOST_HOSTS = 65536  # of a site; Slurm's limit
# The texts around the numbers are at most as long as a name or an address.
_RANGE = re.compile(r"([^\[\]]{0,253})\[([0-9,-]+)\]([^\[\]]{0,253})")
_KEYS = frozenset({"private_key_file", "agent"})  # a log-in has one of them
_SHARED = ("user", "port", PASSPHRASE, *sorted(_KEYS))  # keys that a site can set for all its hosts
_FINDS_KEY = ("name", "address", "port")  # keys that find a host in a known_hosts_file
_LISTS, _TRUTH = frozenset({"features"}), {"true": True, "false": False}


class Placed(dict[str, object]):
    """A host with its place.

    place       its path in messages
    lacks       by key that may be missing: the problem, the remedy, and the keys that would be the cause if wrong
    inherited   the keys that are written at its site
    """

    def __init__(
        self,
        values: Mapping[str, object],
        place: str,
        lacks: Mapping[str, tuple[str, str, tuple[str, ...]]],
        inherited: Collection[str],
    ) -> None:
        super().__init__(values)
        self.place, self.lacks, self.inherited = place, lacks, inherited


def complete(raw: Mapping[str, object], path: str, base_dir: Path, report: Report) -> Mapping[str, object]:
    """Return the site with all hosts in `hosts`: its file's or another stack's, with expanded ranges and common keys.

    path       the site's path in the config
    base_dir   the folder where relative paths start
    """
    raw_hosts = raw.get("hosts")
    hosts = list(raw_hosts) if isinstance(raw_hosts, list | tuple) else []
    entries = [(host, child_path(child_path(path, "hosts"), index)) for index, host in enumerate(hosts)]
    name = raw.get("hosts_file")
    if raw.get("hosts_from") is not None:
        from_path = child_path(path, "hosts_from")
        if beside := [key for key in ("hosts", "hosts_file") if raw.get(key) is not None]:
            problem = f"is set, but {' and '.join(beside)} is also set"
            breaks = "it would be unclear which machines the site has"
            report.add(from_path, problem, breaks, "delete one of them, or write a second site")
            return {**raw, "hosts": UNREAD}
        rented = hosts_of(raw["hosts_from"], from_path, base_dir, report)
        if rented is None:
            return {**raw, "hosts": UNREAD}
        _refuse_passphrases(rented, "another program's outputs", report)
        entries = [*rented]
    if isinstance(name, str) and not name.isprintable():
        return {**raw, "hosts": UNREAD}  # the field `hosts_file` reports it
    if isinstance(name, str):
        rows = _rows(inside(base_dir, name), child_path(path, "hosts_file"), report)
        if rows is None:
            return {**raw, "hosts": UNREAD}
        _refuse_passphrases(rows, "a file", report)
        entries += rows
    elif raw_hosts is not None and not isinstance(raw_hosts, list | tuple):
        return raw
    shared = {key: raw[key] for key in _SHARED if raw.get(key) is not None}
    # The account of an unknown preset is unknown too: the preset is reported, and the hosts are not.
    if user := PRESETS.get(str(raw.get("preset") or "generic"), UNREAD):
        shared.setdefault("user", user)
    file = raw.get("known_hosts_file")
    known_hosts = KnownHosts.load(base_dir, file)
    machines: list[object] = []
    for entry, place in entries:
        for host in _expand(entry, place, report) if isinstance(entry, Mapping) else [entry]:
            if isinstance(host, Mapping):
                keys = {key: value for key, value in host.items() if value is not None}
                keys = {k: value for k, value in shared.items() if not (k in _KEYS and _KEYS & keys.keys())} | keys
                # CSV files and Terraform's maps of strings have ports as texts.
                if isinstance(port := keys.get("port"), str) and re.fullmatch("[0-9]{1,6}", port):
                    keys["port"] = int(port)
                if "host_key" not in keys and (key := known_hosts.key_of(keys.get("address"), keys.get("port", 22))):
                    keys["host_key"] = key
                lacks = {"host_key": _no_key(base_dir, file, keys)} if isinstance(file, str) else {}
                host = Placed(keys, place, lacks, shared.keys() - host.keys())
            machines.append(host)
        if len(machines) > MOST_HOSTS:
            break  # the checks report too many nodes for all sites together
    return {**raw, "hosts": machines} if entries or raw_hosts is not None else raw


def _no_key(base_dir: Path, file: str, host: Mapping[str, object]) -> tuple[str, str, tuple[str, ...]]:
    """Return the problem and the remedy of a host without a key in the site's file, and the keys that find it there."""
    fix = "run `make trust STACK=...`, which shows keys and asks before it records them"
    if inside(base_dir, file).exists():
        address = f"{shown(host.get('address'))}, port {shown(host.get('port', 22))}"
        problem = f"{shown(file)} has no usable key of {shown(host.get('name'))} ({address})"
    else:
        problem, fix = f"known_hosts_file {shown(file)} does not exist", f"{fix}, or correct the file's name"
    return f"missing: {problem}", fix, _FINDS_KEY


def _refuse_passphrases(rows: Sequence[tuple[object, str]], where: str, report: Report) -> None:
    for row, place in rows:
        if isinstance(row, Mapping) and row.get(PASSPHRASE) is not None:
            fix = "change it (ssh-keygen -p -f FILE), and write it for the site or the host as a secret"
            report.add(child_path(place, PASSPHRASE), f"{MASK} is plain text in {where}", OPENED, fix)


def _rows(file: Path, path: str, report: Report) -> list[tuple[object, str]] | None:
    """Return the hosts of a file, each with its place; None if the file cannot be read, which is reported."""
    try:
        # Use the name behind a link: messages show the first line of a CSV file, which may be secret in other files.
        read = _read_csv if Path(os.path.realpath(file)).suffix.lower() == ".csv" else _read_hosts
        return read(file, path)
    except (FileError, OSError, UnicodeDecodeError, csv.Error) as error:
        unread = f"{shown(file)} cannot be read ({type(error).__name__})"
        problem = str(error) if isinstance(error, FileError) else unread
        fix = "write a CSV file with a header line, or a YAML file with a list `hosts`; both use the keys of `hosts`"
        for line in problem.splitlines():
            report.add(path, line, "the site would have no machines", fix)
        return None


def _read_csv(file: Path, path: str) -> list[tuple[object, str]]:
    text = plain_file(file).decode("utf-8-sig")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    names: list[str] = []
    valid = keys_of(HostConfig).keys()
    rows: list[tuple[object, str]] = []
    for cells in reader:
        if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
            continue
        if not names:
            names = [cell.strip() for cell in cells]
            if len(set(names)) < len(names):
                raise FileError(f"{file.name} line {reader.line_num} names a column twice")
            for name in (name for name in names if name not in valid):
                problem = f"{file.name} line {reader.line_num} has a column {shown(name)}, which is not a key of a host"
                raise FileError(f"{problem}: {suggest(name, valid)}")
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
    return _TRUTH.get(cell.lower(), cell)


def _read_hosts(file: Path, path: str) -> list[tuple[object, str]]:
    content = read_yaml(file)
    hosts = content.get("hosts")
    if not isinstance(hosts, list) or len(content) != 1:
        raise FileError(f"{file.name} must contain only a list `hosts`")
    return [(host, f"{path}.hosts[{index}]") for index, host in enumerate(hosts)]


def _expand(host: Mapping[str, object], place: str, report: Report) -> Iterator[Mapping[str, object]]:
    """Return one host, or each host of a range: name n[1-8] with addresses 10.0.0.[1-8] or a list of addresses."""
    name, address = host.get("name"), host.get("address")
    names = _range(name)
    if names is None:
        if isinstance(name, str) and "[" in name:
            report.add(child_path(place, "name"), f"{shown(name)} is not a range", "", "write one such as box[1-3]")
        else:
            yield host
        return
    addresses = list(address) if isinstance(address, list | tuple) else _range(address)
    if addresses is None or len(addresses) != len(names):
        count = f"{len(addresses)} addresses" if addresses else "one address" if address else "no address"
        problem = f"{shown(name)} has {len(names)} names but {count}"
        fix = f"write {len(names)} addresses, as a list or as a range such as 10.0.0.[1-{len(names)}]"
        report.add(child_path(place, "address"), problem, "names and machines could not be matched", fix)
        return
    if "host_key" in host and len(names) > 1:
        fix = "remove host_key, and write a known_hosts_file for the site"
        report.add(child_path(place, "host_key"), "one key for many hosts", "each machine has its own key", fix)
        return
    for name, own_address in zip(names, addresses, strict=True):
        yield {**host, "name": name, "address": own_address}


def _range(text: object) -> list[object] | None:
    """Return the texts of a range such as `n[1-3,7]` or `n[01-64]`, in order; None if the text is not a range."""
    match = _RANGE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    prefix, ranges, suffix = match.groups()
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (re.fullmatch(r"[0-9]{1,9} [0-9]{1,9}", f"{first} {last}") and int(first) <= int(last)):
            return None
        if int(last) - int(first) + len(numbers) >= MOST_HOSTS:
            return None
        width = len(first) if first.startswith("0") else 0
        numbers += [f"{number:0{width}}" for number in range(int(first), int(last) + 1)]
    return [f"{prefix}{number}{suffix}" for number in numbers]
