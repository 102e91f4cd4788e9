"""A real ssh-agent for a test."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def agent(socket: Path, *keys: Path) -> Iterator[None]:
    """An ssh-agent at a socket, with keys."""
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE) as running:
        assert running.stdout
        running.stdout.readline()  # it says where it listens once it does
        try:
            for key in keys:
                subprocess.run(
                    ["ssh-add", "-q", str(key)], env={**os.environ, "SSH_AUTH_SOCK": str(socket)}, check=True
                )
            yield
        finally:
            running.terminate()
