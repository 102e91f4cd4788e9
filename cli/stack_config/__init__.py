"""Read and write `Pulumi.<stack>.yaml`."""
