"""Everything that runs on machines. No code here knows a cloud's name or reads Pulumi config."""
