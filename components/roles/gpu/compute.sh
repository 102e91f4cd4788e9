#!/bin/bash
# uses: gpu/remove
# GPUs ready for jobs at every boot, and their health where preflight can read it.
#
# NODE_GPU_COUNT                    as the check step found it; 0 without GPUs
# GPU_BOOT_PROGRAM, GPU_BOOT_UNIT   what runs at boot before slurmd
# GPU_ROCE_APPLY                    whether RoCE ports are set up (fabric.roce.apply); GPU_ROCE_PROGRAM, GPU_ROCE_UNIT
# GPU_HEALTH_PROGRAM, GPU_HEALTH_UNIT, GPU_HEALTH_TIMER   what collects the health

set_roce_up() {
    if [ "$GPU_ROCE_APPLY" = false ]; then
        remove_roce_unit
        return
    fi
    ensure_file /usr/local/sbin/tailrack-roce 0755 root:root "$GPU_ROCE_PROGRAM"
    ensure_file /etc/systemd/system/tailrack-roce.service 0644 root:root "$GPU_ROCE_UNIT"
    reload_units tailrack-roce.service
    enable_units tailrack-roce.service
    # Again at every run of the step: somebody may have set a port otherwise.
    systemctl restart tailrack-roce.service
}

gpu_compute() {
    set_roce_up
    if [ "$NODE_GPU_COUNT" -eq 0 ]; then
        remove_gpu_units
        return
    fi
    ensure_file /usr/local/sbin/tailrack-gpu 0755 root:root "$GPU_BOOT_PROGRAM"
    ensure_file /usr/local/sbin/tailrack-health 0755 root:root "$GPU_HEALTH_PROGRAM"
    ensure_file /etc/systemd/system/tailrack-gpu.service 0644 root:root "$GPU_BOOT_UNIT"
    ensure_file /etc/systemd/system/tailrack-health.service 0644 root:root "$GPU_HEALTH_UNIT"
    ensure_file /etc/systemd/system/tailrack-health.timer 0644 root:root "$GPU_HEALTH_TIMER"
    reload_units tailrack-gpu.service tailrack-health.service tailrack-health.timer
    # The driver's own way to stay awake, where its packages have it.
    if systemctl -q cat nvidia-persistenced.service >/dev/null 2>&1; then
        systemctl -q is-enabled nvidia-persistenced || touch "$PERSISTENCE_WAS_OFF"
        enable_units --now nvidia-persistenced.service || note "nvidia-persistenced does not start; see 'journalctl -u nvidia-persistenced'"
    fi
    enable_units --now tailrack-gpu.service
    enable_units --now tailrack-health.timer
    # A look takes seconds, on a machine whose GPUs hang a minute: nobody waits for it here.
    systemctl start --no-block tailrack-health.service
}
