#!/bin/bash
# uses: enroot_pyxis/install
# A node has all that containers need before its slurmd takes jobs.

enroot_pyxis_node() { install_containers; }
