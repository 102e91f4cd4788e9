"""The fabric of a site: the network that connects its nodes directly, and its use by jobs."""
