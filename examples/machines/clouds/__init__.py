"""One module for each cloud. `rent` declares a machine and returns its public address."""
