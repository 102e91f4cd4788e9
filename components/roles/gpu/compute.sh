#!/bin/bash
# uses: gpu/remove
# Set up GPUs for jobs at every boot, and collect their health for the preflight.
#
# NODE_GPU_COUNT                    from the check step; 0 without GPUs
# GPU_BOOT_PROGRAM, GPU_BOOT_UNIT   the program that runs at boot before slurmd
# GPU_ROCE_APPLY                    whether to set up RoCE ports (fabric.roce.apply); GPU_ROCE_PROGRAM, GPU_ROCE_UNIT
# GPU_HEALTH_PROGRAM, GPU_HEALTH_UNIT, GPU_HEALTH_TIMER   the program that collects the health

set_roce_up() {
    if [ "$GPU_ROCE_APPLY" = false ]; then
        remove_roce_unit
        return
    fi
    ensure_file /usr/local/sbin/tailrack-roce 0755 root:root "$GPU_ROCE_PROGRAM"
    ensure_file /etc/systemd/system/tailrack-roce.service 0644 root:root "$GPU_ROCE_UNIT"
    reload_units tailrack-roce.service
    enable_units tailrack-roce.service
    # At every run of the step, because a port's settings may have changed.
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
    # The driver's daemon that keeps GPUs initialised, if its packages contain it.
    if systemctl -q cat nvidia-persistenced.service >/dev/null 2>&1; then
        systemctl -q is-enabled nvidia-persistenced || touch "$PERSISTENCE_WAS_OFF"
        enable_units --now nvidia-persistenced.service || note "nvidia-persistenced does not start; see 'journalctl -u nvidia-persistenced'"
    fi
    enable_units --now tailrack-gpu.service
    enable_units --now tailrack-health.timer
    # Do not wait: it takes seconds, or a minute on a machine whose GPUs hang.
    systemctl start --no-block tailrack-health.service
}
