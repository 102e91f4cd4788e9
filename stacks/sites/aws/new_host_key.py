"""Prints a new ECDSA key as one JSON object, `private` and `public`, OpenSSH text. Run as a program.

ECDSA, because the key that the machine makes for itself in its place is ed25519: for a while sshd has both.
"""

import json
import sys

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def main() -> None:
    """Print it."""
    key = generate_private_key(SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    sys.stdout.write(json.dumps({"private": private.decode(), "public": public.decode()}) + "\n")


if __name__ == "__main__":
    main()
