"""Data sets: copies on the nodes' own disks, which one node per site fetches and the others copy from it."""
