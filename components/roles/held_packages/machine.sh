#!/bin/bash
# Versions of what the cluster runs by are those that this step has seen work: another slurmd ends where the Pyxis of the
# cluster does not fit it, another driver ends GPU jobs. apt, and with it unattended-upgrades, takes the pinned version for
# the newest. A person who wants another one takes the file away, upgrades, and runs the step again.
#
# NODE_GPU_COUNT   as the check step found it; 0 without GPUs

PINS=/etc/apt/preferences.d/tailrack

# `name version` of packages that are held, one a line, by their names and sources. Where the driver's modules come built
# for a kernel, the kernel is held with them: without its modules the next boot has no GPU.
held_packages() {
    # shellcheck disable=SC2016  # read by dpkg-query
    dpkg-query -W -f='${db:Status-Status} ${Package} ${source:Package} ${Version}\n' | awk -v gpus="$NODE_GPU_COUNT" '
        $1 != "installed" { next }
        { name[++count] = $2; source[count] = $3; version[count] = $4 }
        $2 ~ /^linux-(modules|objects|signatures)-nvidia-/ { kernel = gpus > 0 }
        END {
            for (i = 1; i <= count; i++)
                if (source[i] ~ /^(slurm-wlm|slurm-smd|munge|tailscale)$/ || name[i] ~ /^(slurmd|slurmctld|munge|tailscale)$/ ||
                    gpus > 0 && (name[i] source[i] ~ /nvidia/ || name[i] ~ /^(cuda-drivers|libcuda1)/) ||
                    kernel && source[i] ~ /^linux(-|$)/)
                    print name[i], version[i]
        }' | sort -u
}

held_packages_machine() {
    local name version pins="# Written by tailrack (docs/day-2.md, updates)."
    while read -r name version; do
        pins+=$'\n\n'"Package: $name"$'\n'"Pin: version $version"$'\n'"Pin-Priority: 1000"
    done < <(held_packages)
    ensure_file "$PINS" 0644 root:root "$pins"
}
