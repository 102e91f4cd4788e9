"""`make elastic`: rent the machines that Slurm asks for, and return those that it has suspended."""
