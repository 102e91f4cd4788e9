"""Pure functions from a model to the text of a configuration file. No pulumi import, no input or output."""
