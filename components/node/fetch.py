"""The proxy for internet access, and the cause of a failed download in the output of pip, curl, apt or git."""

import re
import sys
from collections.abc import Sequence

from components.node import files
from components.node.failure import Failure

# Certificates of the authorities that the machine's owner trusts.
OWN_CERTIFICATES = "/usr/local/share/ca-certificates"
ALL_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_UNTRUSTED = "certificate verify failed"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_MOST = 300
# The causes, the best one first: a certificate error, then a connection error, then others. The group is the text.
_CAUSES = (
    (
        re.compile(
            r"certificate verify failed: (?P<a>[^()\"']+)|SSL certificate problem: (?P<b>.*)|"
            r"[Cc]ertificate verification failed: (?P<c>.*?)(?: +Could not handshake.*)?$"
        ),
        f"{_UNTRUSTED}: ",
    ),
    (re.compile(r"certificate verify failed|CERTIFICATE_VERIFY_FAILED|server certificate verification failed"), None),
    (re.compile(r"\[Errno -?[0-9]+\] (?P<a>[^()\"']+)"), ""),
    (re.compile(r"^(?P<a>(?:ERROR|E: |curl: |fatal: ).*)"), ""),
    (re.compile(r"^(?P<a>.*[Ee]rror.*)"), ""),
    (re.compile(r"^(?P<a>.*[^ ].*)"), ""),
)
_NAMES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}


def fetch_reason(output: str) -> str:
    """Return the cause on one line, from a program's output."""
    lines = _CONTROL.sub("", output).split("\n")
    for pattern, prefix in _CAUSES:
        for line in lines:
            if match := pattern.search(line):
                text = next((group for group in match.groups() if group is not None), "")
                return (_UNTRUSTED if prefix is None else f"{prefix}{text}".rstrip(" "))[:_MOST]
    return ""


def fetch_remedy(reason: str, remedy: str, host: str) -> str:
    """Return the remedy for a cause: for a certificate error always the same, else the given one."""
    if not reason.startswith(_UNTRUSTED):
        return remedy
    return (
        "a proxy that opens TLS, such as a company's, answers with its own certificate: put the certificate of its "
        f"authority (CA) into {OWN_CERTIFICATES}/NAME.crt on {host} and run update-ca-certificates there; for pip, "
        f"write 'cert = {ALL_CERTIFICATES}' below [global] in /etc/pip.conf; then run up again"
    )


def fetch_failure(problem: str, output: str, remedy: str, host: str) -> Failure:
    """Return the failure of a download, with its cause from a program's output. `remedy`: if it has no own."""
    reason = fetch_reason(output)
    return Failure(f"{problem}{f' ({reason})' if reason else ''}", fetch_remedy(reason, remedy, host))


def print_problem(arguments: Sequence[str]) -> int:
    """Print a problem with its cause, from a program's output on stdin, and the remedy."""
    problem, remedy, host = arguments
    failure = fetch_failure(problem, sys.stdin.read(), remedy, host)
    sys.stdout.write(f"{failure.reason}; {failure.remedy}\n")
    return 0


def proxy_variables() -> dict[str, str]:
    """Return the environment variables of a proxy."""
    return proxy_in(files.read("/etc/environment") or "")


def proxy_in(text: str) -> dict[str, str]:
    """Return the variables of a proxy in the text of /etc/environment."""
    pairs = (line.removeprefix("export ").partition("=") for line in text.splitlines())
    return {name: value.strip("\"'") for name, _, value in pairs if name.lower() in _NAMES}
