"""The costs of a stack, now, after a change and this month; and the removal of idle pools."""
