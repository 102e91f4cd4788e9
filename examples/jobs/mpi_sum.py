"""Every rank has its number; all of them have the sum."""

import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
# Open MPI 5.0.7 may crash where a message comes before its receiver is ready (open-mpi/ompi#12495).
time.sleep(1)
total = world.allreduce(world.rank)
print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}: the sum is {total}", flush=True)
sys.exit(0 if total == sum(range(world.size)) else 1)
