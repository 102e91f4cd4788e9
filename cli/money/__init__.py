"""What a stack costs: now, after a change, this month; and the end of pools that nobody uses."""
