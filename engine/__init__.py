"""A small engine for trials and tests: runs a Pulumi program of commands without the Pulumi CLI.

It does the same as the CLI and pulumi-command's provider for `command:local:Command`, `command:remote:Command` and
`command:remote:CopyToRemote`, aliases included, and reads the outputs of stacks of the same workspace. It has no
policy, service backends, imports, refresh, targets, output of running commands, or other providers. It names everything
in a program that it cannot run, and refuses to start.

Its state is one encrypted file, and a stack stays with the engine that made it. After a failure it deletes nothing
until a run succeeds; the CLI deletes what the failure does not block. A new SDK may change the protocol: `make
test-engine`.
"""
