"""What is done on a machine: scripts composed of roles, how they get there, and what they answer."""
