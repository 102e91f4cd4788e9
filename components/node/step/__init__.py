"""Run a step: the phases of its roles, in order, from one JSON object to another."""
