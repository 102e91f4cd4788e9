"""Judge the bus bandwidth of a cluster. Pure Python, without pulumi."""
