"""The lab's SSH keys."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key pair: the private key as OpenSSH PEM, the public one as `ssh-ed25519 AAAA...`."""

    private: str
    public: str


def new_key_pair() -> KeyPair:
    """Return a fresh key pair."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return KeyPair(private.decode(), _public(key))


def _public(key: Ed25519PrivateKey) -> str:
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public.decode()


def ensure_client_key(folder: Path) -> KeyPair:
    """Return the key pair kept in `folder`, created (0600, folder 0700) if missing; the caller holds the lock."""
    path = folder / "id_ed25519"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        half = folder / "id_ed25519.new"
        half.unlink(missing_ok=True)
        half.touch(mode=0o600)
        half.write_text(new_key_pair().private)
        half.rename(path)
    private = path.read_text()
    key = serialization.load_ssh_private_key(private.encode(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError(f"{path} is not an ed25519 key")
    return KeyPair(private, _public(key))
