"""Lab machines that look like real ones, each a layer on the `bare` image: its folder here holds what it consists of.

cloud     rented: cloud-init still at work and apt locked at first contact, a host name that is an address
server    installed from an ISO: ifupdown, another cluster's munge key and slurm.conf, an NFS export, a taken uid
desktop   somebody's own: systemd-resolved, and a member of another tailnet
"""
