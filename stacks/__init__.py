"""What the user writes about a cluster, and where its machines come from."""
