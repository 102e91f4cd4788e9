"""When the certificate of this machine's SSH host key ends. Pure.

From the certificate itself (PROTOCOL.certkeys of OpenSSH): ssh-keygen tells its times in the machine's own zone.
"""

from __future__ import annotations

import base64
import binascii
import struct

from components.roles.monitoring.exposition import Metric, Sample

KIND = b"ssh-ed25519-cert-v01@openssh.com"
# What stands for "never".
FOREVER = 2**64 - 1


def certificate_figures(text: str) -> list[Metric]:
    """Return when it ends, of a certificate as its file has it. Raises ValueError for what is none."""
    end = valid_before(text)
    samples: list[Sample] = [] if end == FOREVER else [({}, float(end))]
    words = "When the certificate ends by which others know this machine's SSH server."
    return [Metric("tailrack_certificate_end_timestamp_seconds", words, samples)]


def valid_before(text: str) -> int:
    """The last second of a certificate of an ed25519 key, in Unix time."""
    try:
        data = base64.b64decode([*text.split(), "", ""][1], validate=True)
        kind, at = _string(data, 0)
        if kind != KIND:
            raise ValueError("not a certificate of an ed25519 key")
        for _ in ("nonce", "public key"):
            _, at = _string(data, at)
        at += 8 + 4  # serial number, and whether it is a host's
        for _ in ("name", "principals"):
            _, at = _string(data, at)
        _, end = struct.unpack_from(">QQ", data, at)
    except (struct.error, binascii.Error) as error:
        raise ValueError(f"not a certificate: {error}") from None
    return int(end)


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 4 + length
    if end > len(data):
        raise ValueError("not a whole certificate")
    return data[at + 4 : end], end
