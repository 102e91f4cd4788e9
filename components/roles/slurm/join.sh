#!/bin/bash
# uses: slurm/gres
# Before the head node knows the machine: from then on it may serve a gres.conf that includes this file.

slurm_join() {
    write_own_gres
}
