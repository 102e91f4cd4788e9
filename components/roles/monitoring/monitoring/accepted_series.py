"""Build the metric_relabel_configs with the series and labels that Prometheus accepts from an exporter. Pure.

Root of a node controls the whole answer of its exporter. Prometheus itself sets `instance`, `site` and `job`. From the
answer it keeps only known names, known labels, and values that no shell, chat or page can misread. It accepts the head
node's own metrics only from the head node.
"""

import json
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from pathlib import Path

# The script that writes the files replaces this by the head node's name.
HEAD = "@HEAD@"
TARGET_LABELS = ("instance", "job", "site")

NODE_NAME = "[a-z][a-z0-9-]*"
USER_NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_LETTERS = "A-Za-z0-9_."
# Labels with a word as value. A series with any other value is dropped; an honest exporter sends none.
WORDS = (
    "bytes", "chip", "collective", "collector", "controller", "cpu", "csrow", "currency", "error", "fstype", "gpu",
    "method", "mode", "node", "operation", "partition", "peer", "port", "proto", "protocol", "scope", "sensor",
    "slurm_job", "state", "user", "verdict",
)  # fmt: skip
PATH = f"/[{_LETTERS}/-]{{0,127}}"
# Labels with values that an honest machine's owner can choose. Other values are replaced by `odd-name-NUMBER`.
CHOSEN: Mapping[str, str] = {
    "device": f"[{_LETTERS}:-]{{1,63}}",
    "export": f"[{_LETTERS}:/-]{{1,127}}",
    "file": PATH,
    "kind": f"[A-Za-z0-9][{_LETTERS} -]{{0,63}}",
    "mountpoint": PATH,
}
ODD_NAMES = 1000


def _series(section: str) -> frozenset[str]:
    listed = ConfigParser(interpolation=None)
    listed.read_string(Path(__file__).with_suffix(".ini").read_text(encoding="utf-8"))
    return frozenset(f"{prefix}_{name}" for prefix, names in listed[section].items() for name in names.split())


# The series of every machine, and more of the head node.
ANY_MACHINE, HEAD_ONLY = _series("every machine"), _series("head node")


def metric_relabel_configs() -> str:
    """Return the rules as JSON, which is also YAML, in the order in which Prometheus applies them."""
    # The mount point identifies a file system. Its device would be free text without a use.
    no_device = {
        "source_labels": ["__name__"],
        "regex": "node_filesystem_.*",
        "target_label": "device",
        "replacement": "",
    }
    odd_names = (rule for label in CHOSEN for rule in _without_odd_names(label))
    return json.dumps([_known_series(), no_device, *odd_names, _words(), _labels()])


def _known_series() -> Mapping[str, object]:
    everywhere, head = ("|".join(sorted(names)) for names in (ANY_MACHINE, HEAD_ONLY))
    return {
        "action": "keep",
        "source_labels": ["instance", "__name__"],
        "regex": f"[^;]*;({everywhere})|{HEAD};({head})",
    }


def _without_odd_names(label: str) -> Sequence[Mapping[str, object]]:
    # Prometheus' regular expressions have no negation: hash every value, then remove the hash of good values.
    spare = "__tmp_odd_name"
    return (
        {"action": "hashmod", "source_labels": [label], "modulus": ODD_NAMES, "target_label": spare},
        {"source_labels": [label], "regex": f"({CHOSEN[label]})?", "target_label": spare, "replacement": ""},
        {"source_labels": [spare], "regex": "([0-9]+)", "target_label": label, "replacement": "odd-name-$1"},
    )


def _words() -> Mapping[str, object]:
    # The number of separators is fixed, so a value that contains a separator does not match.
    word = f"[{_LETTERS}-]*"
    return {
        "action": "keep",
        "source_labels": [*WORDS],
        "regex": f"{word}(;{word}){{{len(WORDS) - 1}}}",
    }


def _labels() -> Mapping[str, object]:
    return {"action": "labelkeep", "regex": "|".join(["__name__", *TARGET_LABELS, *WORDS, *CHOSEN])}
