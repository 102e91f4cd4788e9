#!/bin/bash
# Serve the fake registry on this machine as registry.lab:5000, with an image of busybox and a certificate that it trusts.
set -eu
password=$1
folder=/root/registry
mkdir -p "$folder"/rootfs/{bin,etc,tmp,root,proc,sys,dev,run,var,usr/bin}
cd "$folder"
cp /bin/busybox rootfs/bin/busybox
for name in sh cat id env; do ln -sf busybox "rootfs/bin/$name"; done
echo from the registry >rootfs/etc/greeting
tar -C rootfs -czf layer.tar.gz .
printf '%s' "$password" >password
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=registry.lab \
    -addext subjectAltName=DNS:registry.lab -keyout key.pem -out cert.pem 2>/dev/null
cp cert.pem /usr/local/share/ca-certificates/registry-lab.crt
update-ca-certificates >/dev/null 2>&1
grep -q registry.lab /etc/hosts || echo '127.0.0.1 registry.lab' >>/etc/hosts
systemctl stop lab-registry 2>/dev/null || :
systemd-run -q --unit lab-registry python3 /root/registry.py "$folder" 5000 puller
for _ in {1..50}; do
    if (: </dev/tcp/127.0.0.1/5000) 2>/dev/null; then exit 0; fi
    sleep 0.1
done
exit 1
