"""What machines are made into, one folder a capability."""
