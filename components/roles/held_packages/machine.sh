#!/bin/bash
# Pin the versions of the cluster's packages: another slurmd does not start if the cluster's Pyxis does not fit it, and
# another driver ends GPU jobs. apt and unattended-upgrades do not upgrade a pinned package. To upgrade one, remove the
# file, upgrade, and run the step again.
#
# NODE_GPU_COUNT   from the check step; 0 without GPUs

PINS=/etc/apt/preferences.d/tailrack

# Print `name version` of the packages to hold, one a line, selected by name and source. If packages contain the
# driver's modules for a kernel, hold the kernel too: another kernel would boot without GPUs.
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
