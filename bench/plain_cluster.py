"""Build the cluster of bench/usable_nodes.py with a few lines of bash per machine: the time that daemons alone need.

The bash checks, repairs and secures nothing, so no product can be this fast. The first machine is the head node, which
computes too.
"""

import base64
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.machines import Machines

_JOIN = """set -e
systemctl start tailscaled
echo {key} | base64 -d >/etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
systemctl restart munge
tailscale up --accept-dns=false --hostname={name} --login-server=http://control.lab:8080 --auth-key=any >&2
tailscale ip -4"""
_USER = """set -e
echo '{hosts}' >>/etc/hosts
useradd -M -u 6001 -d /shared/home/ada ada
mkdir -p /shared /etc/slurm
"""
_HEAD = (
    _USER
    + """mkdir -p /export/shared/home /var/lib/slurm/plain /etc/ganesha
install -d -o ada /export/shared/home/ada
chown slurm: /var/lib/slurm/plain
mount --bind /export/shared /shared
cat >/etc/slurm/slurm.conf <<END
ClusterName=plain
SlurmctldHost={head}({address})
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/plain
SlurmctldParameters=enable_configless
MaxNodeCount=128
ReturnToService=2
SelectType=select/cons_tres
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PartitionName=all Nodes=ALL Default=YES
END
echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf
cat >/etc/ganesha/ganesha.conf <<END
NFS_CORE_PARAM {{ Protocols = 4; mount_path_pseudo = true; allow_set_io_flusher_fail = true; }}
NFSV4 {{ Grace_Period = 5; Lease_Lifetime = 10; RecoveryBackend = fs; Only_Numeric_Owners = true; }}
EXPORT {{ Export_Id = 1; Path = /export/shared; Pseudo = /export/shared;
    Access_Type = RW; SecType = sys; FSAL {{ Name = VFS; }} }}
END
systemctl restart nfs-ganesha slurmctld
"""
)
_MOUNT = (
    _USER
    + """until timeout 5 mount -t nfs4 {address}:/export/shared /shared 2>&-; do [ $SECONDS -lt 60 ]; sleep 0.1; done
"""
)
_COMPUTE = """mkdir -p /etc/systemd/system/slurmd.service.d
cat >/etc/systemd/system/slurmd.service.d/plain.conf <<END
[Service]
ExecStart=
ExecStart=/usr/sbin/slurmd --systemd -Z -N {name} --conf-server {address}
END
systemctl daemon-reload
until (: </dev/tcp/{address}/6817) 2>&-; do [ $SECONDS -lt 60 ]; sleep 0.1; done
systemctl restart slurmd
echo done"""
_JOB = """until [ "$(sinfo -h -o %D -t idle)" = {count} ]; do sleep 0.1; done
cd /
runuser -u ada -- srun -N {count} hostname"""


def plain_seconds(machines: Machines, names: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Return the seconds until a job ran on all machines, and the CPU seconds of each. Raises RuntimeError."""
    before, begun = machines.cpu_seconds(), time.monotonic()
    key = base64.b64encode(os.urandom(128)).decode()
    with ThreadPoolExecutor(len(names)) as pool:
        joined = pool.map(lambda name: machines.says(name, _JOIN.format(key=key, name=name)), names)
        addresses = [output.split()[-1] for output in joined]
        values = {
            "hosts": "\n".join(map(" ".join, zip(addresses, names, strict=True))),
            "head": names[0],
            "address": addresses[0],
        }

        def serve(name: str) -> str:
            text = (_HEAD if name == names[0] else _MOUNT) + _COMPUTE
            return machines.says(name, text.format(name=name, **values))

        outputs = [
            *pool.map(serve, names),
            machines.says(names[0], f"timeout 60 bash -c '{_JOB}'".format(count=len(names))),
        ]
    if not set(names) <= set(outputs[-1].split()):
        raise RuntimeError("\n".join(outputs))
    after = machines.cpu_seconds()
    return time.monotonic() - begun, {name: after[name] - before[name] for name in names}
