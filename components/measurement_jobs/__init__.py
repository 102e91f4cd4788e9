"""Measurements: the plan, the jobs and their bash."""
