#!/bin/bash
# Print the state of one machine for a bug report, with limits of lines and time and without secrets.
export LC_ALL=C
LINES_EACH=400

# Print a section $1 with the output of the command $2...; a long output keeps its end.
ask() {
    local name=$1
    shift
    printf '\n===== %s\n' "$name"
    timeout -k 2 15 "$@" 2>&1 </dev/null | tail -n "$LINES_EACH" | cut -c 1-1000
    [ "${PIPESTATUS[0]}" -eq 0 ] || printf '(ended with status %s)\n' "${PIPESTATUS[0]}"
}

# Print a section $1 about the file $2 as the owner of its folder: a link there could lead to a file of root.
ask_owner() {
    local name=$1 owner as=()
    owner=$(stat -c %U "${2%/*}")
    shift 2
    [ "$(id -u)" != 0 ] || [ "$owner" = root ] || as=(env -i PATH="$PATH" runuser -u "$owner" --)
    ask "$name" "${as[@]}" "$@"
}

ask machine hostnamectl
ask time bash -c 'date -u; timedatectl show 2>/dev/null; uptime'
ask kernel uname -a
# shellcheck disable=SC2016  # read by dpkg-query
ask versions bash -c 'dpkg-query -W -f="${Package} ${Version} ${db:Status-Abbrev}\n" | grep -E "^(slurm|munge|tailscale|nfs|enroot|pyxis|openmpi|libpmix|restic|mariadb|nvidia|cuda|libnvidia)"'
ask memory free -m
ask disks df -hT
ask mounts findmnt -rn -t nfs4,autofs,nfs
ask failed systemctl --failed --no-pager
for unit in slurmctld slurmd slurmdbd munge tailscaled nfs-server nfs-ganesha tailrack-database; do
    systemctl cat "$unit" >/dev/null 2>&1 || continue
    ask "unit $unit" systemctl show "$unit" -p ActiveState,SubState,NRestarts,Result,ActiveEnterTimestamp,ExecMainStatus
    ask "journal of $unit" journalctl --no-pager -u "$unit" -n "$LINES_EACH" -o short-iso
done
ask timers systemctl list-timers --no-pager 'tailrack-*'
ask 'journal of tailrack' journalctl --no-pager -u 'tailrack-*' -n "$LINES_EACH" -o short-iso
for log in /var/log/tailrack/*.log; do [ ! -f "$log" ] || ask "step ${log##*/}" tail -n 100 "$log"; done
for slurm_log in /var/log/slurm/*.log; do
    [ ! -f "$slurm_log" ] || ask_owner "log ${slurm_log##*/}" "$slurm_log" tail -n "$LINES_EACH" "$slurm_log"
done
ask addresses ip -br address
ask routes ip route
ask listening ss -lntu
ask tailnet tailscale status
ask 'tailnet paths' tailscale netcheck
ask firewall nft list table inet tailrack
ask kernel.log dmesg --level=emerg,alert,crit,err,warn
[ ! -e /proc/driver/nvidia/version ] || ask gpus nvidia-smi
for log in /run/tailrack/*.json; do [ ! -f "$log" ] || ask "${log##*/}" cat "$log"; done
if systemctl -q is-enabled slurmctld 2>/dev/null; then
    ask nodes sinfo -N -l
    ask reasons sinfo -R
    ask jobs squeue -l
    ask 'node details' scontrol show node
    ask partitions scontrol show partition
    ask slurm.conf cat /etc/slurm/slurm.conf
    [ ! -e /etc/tailrack/slurm.conf ] || ask 'own slurm.conf' cat /etc/tailrack/slurm.conf
    ask slurmctld scontrol ping
    ask sdiag sdiag
    if systemctl -q is-active slurmdbd 2>/dev/null; then ask sacct sacct -a -X -S now-1day; fi
    if [ -x /usr/local/sbin/tailrack-backup ]; then ask backup tailrack-backup status; fi
fi
exit 0
