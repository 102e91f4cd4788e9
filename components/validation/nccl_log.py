"""NCCL's own lines in a job's output, told apart from the lines of the program it runs in.

Source: `ncclDebugLog` in NCCL's src/debug.cc. A line is `[time] host:pid:tid [device] NCCL INFO message`, the
time being optional. NCCL shares standard output with nccl-tests, which prints a row of its table in three
pieces, so a log line may start in the middle of a row.
"""

import re
from dataclasses import dataclass

# Two words at most before NCCL (TRACE: seconds and place): else the rest of a line would be read for each tag in it.
_TAG = r":\d+:\d+ \[-?\d+\] (?:\S+ ){0,2}?NCCL (?:INFO|WARN|TRACE) "
_LOG_LINE = re.compile(rf"(?:\[[^\]]*\] )?(?P<host>[A-Za-z0-9][\w.-]*){_TAG}(?P<message>.*)", re.ASCII)
_CHANNEL = re.compile(r"^(?:Channel|CollNet|NVLS|Tree) \S+ : .*?(?= via )")


@dataclass(frozen=True)
class LogLine:
    """One message of NCCL and the host that wrote it."""

    host: str
    message: str


def separate(output: str) -> tuple[str, tuple[LogLine, ...]]:
    """The program's own text, its torn lines joined again, and NCCL's lines in their order.

    The text ends with a newline only if the program's last line did.
    """
    lines = output.replace("\r\n", "\n").split("\n")
    whole = [_LOG_LINE.match(line) for line in lines]
    hosts = {found["host"] for found in whole if found}
    # A torn row leaves no space before the host's name ("-1node7:591:..."): only a known name can be found.
    names = "|".join(re.escape(host) for host in sorted(hosts, key=len, reverse=True))
    torn = re.compile(rf"(?P<host>{names}){_TAG}(?P<message>.*)", re.ASCII) if hosts else None
    text: list[str] = []
    log: list[LogLine] = []
    for number, (line, found) in enumerate(zip(lines, whole, strict=True)):
        found = found or (torn.search(line) if torn else None)
        if found is None:
            text.append(line if number == len(lines) - 1 else line + "\n")
            continue
        text.append(line[: found.start()])
        log.append(LogLine(found["host"], found["message"]))
    return "".join(text), tuple(log)


def distinct(log: str) -> str:
    """The log without what a host says again for each channel and rank: a thousand ranks must fit into one report."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for line in log.splitlines():
        found = _LOG_LINE.match(line)
        said = (found["host"], _CHANNEL.sub("", found["message"])) if found else ("", line)
        if said not in seen:
            seen.add(said)
            kept.append(line + "\n")
    return "".join(kept)
