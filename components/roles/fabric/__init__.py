"""The fabric of a site: the network on which its nodes reach one another directly, and how jobs come to use it."""
