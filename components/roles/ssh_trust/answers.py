"""Where on a node the programs are that answer the head node's questions (templates/tailrack-answer)."""

ANSWERS = "/usr/local/lib/tailrack/answers"
