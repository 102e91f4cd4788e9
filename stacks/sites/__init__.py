"""Where machines come from. Each kind of site yields Hosts; from then on they are all the same."""
