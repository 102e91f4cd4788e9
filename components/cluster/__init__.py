"""What a cluster and a pool are made of: components, one a file."""
