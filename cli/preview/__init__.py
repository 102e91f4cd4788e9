"""The preview for people: certain and possible changes, on the terminal and as a comment."""
