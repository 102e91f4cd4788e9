#!/bin/bash
# Device files of the GPUs, which nobody makes at boot where no display and no persistence daemon asks for them; slurmd
# ends without those that gres.conf names.
#
# NODE_GPU_COUNT   0 where the config promises none

gpu_compute() {
    local unit=/etc/systemd/system/tailrack-gpu.service
    if [ "$NODE_GPU_COUNT" -eq 0 ]; then
        [ ! -e "$unit" ] || systemctl disable -q --now tailrack-gpu.service
        rm -f "$unit"
        systemctl daemon-reload
        return
    fi
    # nvidia-smi makes the GPUs' own files, nvidia-modprobe those of CUDA's memory. Neither must keep slurmd from starting.
    ensure_file "$unit" 0644 root:root "[Unit]
Description=Device files of the GPUs, before slurmd looks for them
Before=slurmd.service
After=systemd-modules-load.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-/usr/bin/env nvidia-smi -L
ExecStart=-/usr/bin/env nvidia-modprobe -u -c 0

[Install]
WantedBy=multi-user.target slurmd.service"
    systemctl daemon-reload
    systemctl enable -q --now tailrack-gpu.service
}
