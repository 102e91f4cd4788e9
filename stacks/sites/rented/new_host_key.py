"""Print a new ECDSA key pair in OpenSSH format as one JSON object, `private` and `public`. Run as a program.

The machine later creates its own ed25519 key; with two types, sshd can have both for a while.
"""

import json
import sys

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def main() -> None:
    """Print the key pair."""
    key = generate_private_key(SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    sys.stdout.write(json.dumps({"private": private.decode(), "public": public.decode()}) + "\n")


if __name__ == "__main__":
    main()
