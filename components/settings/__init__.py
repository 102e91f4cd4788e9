"""What every section of the stack config is made of: words, problems, kinds of value. No pulumi."""
