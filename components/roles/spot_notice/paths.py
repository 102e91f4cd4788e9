"""Paths of the service that reads spot notices."""

PROGRAM = "/usr/local/lib/tailrack/spot-notice"
UNIT = "tailrack-spot-notice.service"
