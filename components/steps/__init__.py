"""Steps: scripts composed from roles, their delivery to machines, and the results that they print."""
