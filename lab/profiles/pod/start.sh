#!/bin/bash
# Start of a pod's image, like /start.sh of RunPod's images: an SSH server, then nothing that would reap zombies.
ssh-keygen -A
service ssh start
exec sleep infinity
