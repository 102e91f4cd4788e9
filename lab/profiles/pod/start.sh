#!/bin/bash
# Start of a pod's image, like /start.sh of RunPod's images: an SSH server, then nothing that would reap zombies.
[ -z "$PUBLIC_KEY" ] || echo "$PUBLIC_KEY" >>/root/.ssh/authorized_keys
ssh-keygen -A
service ssh start
exec sleep infinity
