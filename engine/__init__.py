"""A small engine for trying out and for tests: runs a Pulumi program of commands where there is no Pulumi CLI.

It does what the CLI and pulumi-command's provider do for `command:local:Command` and `command:remote:Command`, reads
outputs of stacks of the same workspace, and leaves out policy, service backends, imports, refresh,
targets, commands' output while they run, and every other provider. What it cannot run it refuses by name.
"""
