"""The share: the head node serves it over NFS, and every node mounts it."""
