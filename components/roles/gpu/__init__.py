"""GPUs: their setup at boot, and their health."""
