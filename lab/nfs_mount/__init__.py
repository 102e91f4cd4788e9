"""mount.nfs4 for a machine whose kernel has no NFS: NFSv4 by libnfs, shown through FUSE.

mount(8) and systemd call it as they call the kernel's helper: `mount.nfs4 head:/shared /shared -o hard,nfsvers=4.2`.
It returns 0 once the file system is there and serves it from a daemon until it is unmounted. Every caller's own uid,
gid and groups go to the server, a server that is away is waited for without an end, and other nodes' changes show
within a second.

Limits of libnfs 5.0: always NFSv4.0; times in microseconds; a file can be opened only by
a user who may do to its directory what is asked of the file; locks are local to the node.

On a machine it is one file, an archive of this package (lab/images.py makes it), which /usr/sbin/mount.nfs4 has Python
run. That Python, libnfs and libfuse come with it, unpacked below /usr/lib/lab-mount (lab/image/packages): the machine's
own distribution may lack them, or have them under other names.
"""
