"""GPUs, what they need at boot, and their health."""
