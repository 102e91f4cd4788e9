"""What a preview says to people: what is certain, what may be, and in which words."""
