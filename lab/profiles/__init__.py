"""Lab machines that look like real ones, each with a folder here. All but the pod are layers on the `bare` image.

cloud     rented: cloud-init still at work and apt locked at first contact, a host name that is an address, needrestart
server    installed from an ISO: ifupdown, another cluster's munge key and slurm.conf, an NFS export, a taken uid
desktop   somebody's own: systemd-resolved, a member of another tailnet, an sshd that a socket starts
pod       RunPod's: a container without systemd, TUN device, mounts and capabilities, with a volume at /workspace
"""
