#!/bin/bash
# uses: enroot_pyxis/install
# Install containers on a node before its slurmd takes jobs.

enroot_pyxis_node() { install_containers; }
