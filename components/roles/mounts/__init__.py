"""Mounts by site: file systems of other servers, mounted or checked on the nodes of some sites."""
