"""The folder on a node with the programs that answer the head node's requests (templates/tailrack-answer)."""

ANSWERS = "/usr/local/lib/tailrack/answers"
