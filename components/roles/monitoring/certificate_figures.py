"""Metric of the end of this machine's SSH host certificate. Pure.

It parses the certificate itself (OpenSSH's PROTOCOL.certkeys), because ssh-keygen prints times in the local time zone.
"""

from __future__ import annotations

import base64
import binascii
import struct

from components.roles.monitoring.exposition import Metric, Sample

KIND = b"ssh-ed25519-cert-v01@openssh.com"
# The end of a certificate that never expires.
FOREVER = 2**64 - 1


def certificate_figures(text: str) -> list[Metric]:
    """Return the metric for the content of a certificate file. Raise ValueError for other content."""
    end = valid_before(text)
    samples: list[Sample] = [] if end == FOREVER else [({}, float(end))]
    text = "When the certificate of this machine's SSH host key ends."
    return [Metric("tailrack_certificate_end_timestamp_seconds", text, samples)]


def valid_before(text: str) -> int:
    """Return the last second of an ed25519 certificate, in Unix time."""
    try:
        data = base64.b64decode([*text.split(), "", ""][1], validate=True)
        kind, offset = _string(data, 0)
        if kind != KIND:
            raise ValueError("not a certificate of an ed25519 key")
        for _ in ("nonce", "public key"):
            _, offset = _string(data, offset)
        offset += 8 + 4  # serial number and certificate type
        for _ in ("name", "principals"):
            _, offset = _string(data, offset)
        _, end = struct.unpack_from(">QQ", data, offset)
    except (struct.error, binascii.Error) as error:
        raise ValueError(f"not a certificate: {error}") from None
    return int(end)


def _string(data: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", data, offset)
    end = offset + 4 + length
    if end > len(data):
        raise ValueError("not a whole certificate")
    return data[offset + 4 : end], end
