"""A small engine for trying out and for tests: runs a Pulumi program of commands where there is no Pulumi CLI.

It does what the CLI and pulumi-command's provider do for `command:local:Command` and `command:remote:Command`, and
leaves out policy, service backends, imports, refresh, targets, secrets providers and every other provider.
"""

from engine.engine import Engine
from engine.events import OPERATIONS, EngineError, Event, Failure, Summary

__all__ = ["OPERATIONS", "Engine", "EngineError", "Event", "Failure", "Summary"]
