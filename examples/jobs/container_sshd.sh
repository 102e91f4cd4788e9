#!/bin/bash
# sshd in a container, on a port of the job's own, for tools that want to log in: an editor, a debugger, a launcher that knows
# only SSH. Your own keys open it, from the nodes of the cluster, until the job ends. IMAGE has sshd.
#SBATCH --job-name=container-sshd --ntasks=1 --time=30
port=$((61000 + SLURM_JOB_ID % 4500))
key=$HOME/.ssh/container_host_key
[ -e "$key" ] || ssh-keygen -q -t ed25519 -N '' -f "$key"
echo "ssh -p $port $SLURMD_NODENAME"
srun --container-image="${IMAGE:?an image with sshd}" --container-mount-home --no-container-remap-root \
    /usr/sbin/sshd -D -e -f /dev/null -p "$port" -h "$key" -o PidFile=none -o UsePAM=no -o PasswordAuthentication=no \
    -o KbdInteractiveAuthentication=no -o StrictModes=no -o "AuthorizedKeysFile=$HOME/.ssh/authorized_keys"
