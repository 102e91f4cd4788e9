"""Progress, failures and commands that `make` prints."""
