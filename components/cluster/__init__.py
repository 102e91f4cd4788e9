"""The components of clusters and pools, one per file."""
