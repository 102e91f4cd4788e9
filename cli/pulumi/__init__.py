"""The Pulumi CLI or the in-process engine, run on one stack."""
