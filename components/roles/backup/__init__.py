"""Hourly backups of the head node."""
