"""Write a pod's own names in a new container."""

from components.roles.names.pod import pod as pod_boot

__all__ = ["pod_boot"]
