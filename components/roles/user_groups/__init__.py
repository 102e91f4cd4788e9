"""Groups of users, the same on every machine, each with a shared folder."""
