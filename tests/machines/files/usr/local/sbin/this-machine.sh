#!/bin/bash
# Who this machine is, from the kernel's command line: machine.name=, machine.address=, and machine.rdma=soft for an RDMA
# device made of its network card. The name is given once: afterwards it is the machine's own.
set -euo pipefail
rdma='' name='' address=''
for word in $(</proc/cmdline); do
    case $word in
        machine.name=*) name=${word#*=} ;;
        machine.address=*) address=${word#*=} ;;
        machine.rdma=*) rdma=${word#*=} ;;
    esac
done
if [ ! -e /var/lib/this-machine ]; then
    echo "$name" >/etc/hostname
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n10.9.2.1 control.lab\n' "$name" >/etc/hosts
    ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
    : >/var/lib/this-machine
fi
hostname "$(</etc/hostname)"
udevadm wait --timeout=600 /sys/class/net/eth0
ip link set eth0 up
ip address replace "$address/24" dev eth0
if [ "$rdma" = soft ]; then
    modprobe rdma_rxe
    rdma link show rxe0/1 || rdma link add rxe0 type rxe netdev eth0
fi
