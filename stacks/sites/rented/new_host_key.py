"""Print a new ECDSA key pair in OpenSSH format as one JSON object, `private` and `public`. Run as a program.

The machine later creates its own ed25519 key; with two types, sshd can have both for a while.
"""

import json
import sys

import asyncssh


def main() -> None:
    """Print the key pair."""
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    private, public = key.export_private_key().decode(), key.export_public_key().decode().strip()
    sys.stdout.write(json.dumps({"private": private, "public": public}) + "\n")


if __name__ == "__main__":
    main()
