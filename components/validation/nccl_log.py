"""Separate NCCL's log lines in a job's output from the lines of the program.

Source: `ncclDebugLog` in NCCL's src/debug.cc. A line is `[time] host:pid:tid [device] NCCL INFO message`; the time is
optional. nccl-tests prints a row in three pieces, so a log line may start inside a row.
"""

import re
from dataclasses import dataclass

# At most two words before NCCL (TRACE: seconds and place), or the rest of a line would be scanned for each tag.
_TAG = r":\d+:\d+ \[-?\d+\] (?:\S+ ){0,2}?NCCL (?:INFO|WARN|TRACE) "
_LOG_LINE = re.compile(rf"(?:\[[^\]]*\] )?(?P<host>[A-Za-z0-9][\w.-]*){_TAG}(?P<message>.*)", re.ASCII)
_CHANNEL = re.compile(r"^(?:Channel|CollNet|NVLS|Tree) \S+ : .*?(?= via )")


@dataclass(frozen=True)
class LogLine:
    host: str
    message: str


def separate(output: str) -> tuple[str, tuple[LogLine, ...]]:
    """Return the program's text with torn lines joined, and NCCL's lines in their order.

    The text ends with a newline only if the program's last line did.
    """
    lines = output.replace("\r\n", "\n").split("\n")
    whole = [_LOG_LINE.match(line) for line in lines]
    hosts = {match["host"] for match in whole if match}
    # A torn row has no space before the host's name ("-1node7:591:..."), so only known names can be found.
    names = "|".join(re.escape(host) for host in sorted(hosts, key=len, reverse=True))
    torn = re.compile(rf"(?P<host>{names}){_TAG}(?P<message>.*)", re.ASCII) if hosts else None
    text: list[str] = []
    log: list[LogLine] = []
    for number, (line, match) in enumerate(zip(lines, whole, strict=True)):
        match = match or (torn.search(line) if torn else None)
        if match is None:
            text.append(line if number == len(lines) - 1 else line + "\n")
            continue
        text.append(line[: match.start()])
        log.append(LogLine(match["host"], match["message"]))
    return "".join(text), tuple(log)


def distinct(log: str) -> str:
    """Return the log without a host's repetitions for each channel and rank, to fit into a report."""
    seen: set[tuple[str, str]] = set()
    lines = []
    for line in log.splitlines():
        match = _LOG_LINE.match(line)
        message = (match["host"], _CHANNEL.sub("", match["message"])) if match else ("", line)
        if message not in seen:
            seen.add(message)
            lines.append(line + "\n")
    return "".join(lines)
