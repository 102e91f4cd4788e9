"""The words of storage.mounts, which nodes use too."""

NFS, PRESENT = "nfs4", "present"


def feature_of(path: str) -> str:
    """Return the Slurm feature of a mount, such as `mount-data` for /data."""
    return f"mount-{path.strip('/').replace('/', '-')}"
