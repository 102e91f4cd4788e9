"""What names of network interfaces and RDMA devices are: for the config, machines' answers, and the program on them."""

# Also the characters that /sys and Slurm's files take as they are; 15 are the kernel's limit.
INTERFACE = r"[A-Za-z][A-Za-z0-9_.-]{0,14}"
DEVICE = r"[A-Za-z][A-Za-z0-9_-]{0,30}"
