"""What is made of the machines. Nothing here knows a cloud's name or reads Pulumi config."""
