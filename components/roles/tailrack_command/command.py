"""Where the command `tailrack` lies on the head node."""

COMMAND = "/usr/local/bin/tailrack"
