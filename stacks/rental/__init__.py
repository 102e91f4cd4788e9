"""Rent machines from clouds by their HTTP APIs: clients, and programs that rent and return.

The programs run where you create and destroy the stack (`python3 -m ...`), with the package `requests` alone. A failed
query changes nothing. A program that loses its engine rents nothing more; the next run finds a machine of a call that
was in progress. EC2 needs more than a bearer token, so kind `aws` uses Pulumi's package.

`<node>-machine` is a `local.Command` with the API key on secret stdin. Its `create` first looks for the tags of owner
and node. `<site>-account` puts a random owner into the state before any machine; its `delete` ends every other machine
of that owner. Before the first resource the program asks each cloud, and a machine that has gone becomes a changed
input. Pulumi's providers of clouds work only under the CLI, Lambda has none, and a killed create leaves a
machine that costs money and that no later run finds. Dynamic providers have their code pickled into the state, so each
release would change every resource. Stacks of one name may share an account, so their name is no tag of the owner.
"""
