"""What a machine of the cluster is set up for: one folder a role."""
