"""The share: served by the head node over NFS, mounted by every node."""
