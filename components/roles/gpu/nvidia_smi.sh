#!/bin/bash
# Find a machine's NVIDIA GPUs with one nvidia-smi query and the PCI bus.

# Time limit of nvidia-smi in seconds: without a persistence daemon it initialises every GPU first.
GPU_LIMIT=60

# Print the PCI addresses of NVIDIA devices of class $1 (03: display and 3D controllers, 0680: NVSwitches), one a line.
nvidia_on_the_bus() {
    local vendor device class
    while read -r vendor; do
        device=${vendor%/vendor}
        class=$(cat "$device/class")
        case $class in 0x"$1"*) printf '%s\n' "${device##*/}" ;; esac
    done < <(grep -slx 0x10de /sys/bus/pci/devices/*/vendor)
}

# Print a product's name for Slurm and the config: h100 for "NVIDIA H100 80GB HBM3". It is the product name without
# brand words, memory size and board type, or `unknown` if nothing valid is left.
gpu_kind_of() {
    local kind
    kind=$(tr '[:upper:]' '[:lower:]' <<<"$1" | sed -E '
        s/\b(nvidia|tesla|geforce|quadro|graphics|generation|edition|server|workstation|blackwell|gpu|with|design)\b//g
        s/\b(sxm[0-9]*|pcie|nvl|hbm[0-9]*[a-z]?|[0-9]+gb?|pg[0-9]+(-[0-9]+)?|ac|lc)\b//g
        s/\brtx a([0-9]{4})\b/a\1/
        s/[^a-z0-9-]//g; s/-+/-/g; s/^-|-$//g')
    [[ $kind =~ ^[a-z][a-z0-9-]{0,40}$ && ! $kind =~ ^(all|gpu|none|default|localhost)$ ]] || kind=unknown
    printf '%s' "$kind"
}

# Run nvidia-smi with its output in file $1; status 124 or 137 if it does not finish. If it hangs at a broken GPU it may
# not be killable and is left behind. In a container it does not run as root, because it would create device files of
# other GPUs.
nvidia_smi() {
    local output=$1
    shift
    if systemd-detect-virt -cq 2>/dev/null; then
        as_user nobody "$GPU_LIMIT" 4000000 nvidia-smi "$@" >"$output" 2>&1 </dev/null
    else
        within "$GPU_LIMIT" nvidia-smi "$@" >"$output" 2>&1 </dev/null
    fi
}

# Print the driver's version from nvidia-smi's XML on stdin, then one line for each GPU, separated by tabs: number of
# the device file, PCI address, MIG mode, display state, memory in MiB, product name.
gpu_lines() {
    awk -F '[<>]' '
        /<driver_version>/ { print $3 }
        /<gpu id=/ { split($2, id, "\""); bus = id[2]; name = minor = mig = display = memory = ""; in_memory = 0 }
        /<product_name>/ { name = $3 }
        /<minor_number>/ { minor = $3 }
        /<current_mig>/ { mig = $3 }
        /<display_active>/ { display = $3 }
        /<fb_memory_usage>/ { in_memory = 1 }
        /<total>/ && in_memory { memory = $3 + 0; in_memory = 0 }
        /<\/gpu>/ { print minor "\t" bus "\t" mig "\t" display "\t" memory "\t" name }'
}

# Print the smallest number of active NVLinks of any GPU, from `nvidia-smi nvlink -s` on stdin.
min_links() {
    awk '
        /^GPU [0-9]+:/ { count++; links[count] = 0 }
        /^[[:space:]]+Link [0-9]+: [0-9.]+ GB\/s/ { links[count]++ }
        END { min = count ? links[1] : 0; for (gpu in links) if (links[gpu] < min) min = links[gpu]; print min + 0 }'
}

# Fail with the reason and the remedy for a failure of nvidia-smi: status, output, PCI addresses.
nvidia_smi_failed() {
    local status=$1 output=$2 bus=$3 line
    line=$(tr -cd '[:print:]\n' <<<"$output" | grep -m 1 . | cut -c 1-200 || :)
    case $status:$output in
        124:* | 137:*) fail "nvidia-smi does not answer within ${GPU_LIMIT}s: a GPU or its driver hangs" \
            "see 'dmesg | grep -iE \"nvrm|xid\"' on $HOST_NAME, then restart it: only a restart recovers a GPU that hangs" ;;
        *'version mismatch'*) fail "the running NVIDIA driver is not the installed one ($line)" \
            "restart $HOST_NAME, because its driver was updated while it ran; then run up again" ;;
        *"couldn't communicate"*) fail "the NVIDIA driver does not load ($line)" \
            "run 'modprobe nvidia' on $HOST_NAME to see why ('dkms status': is there a module for this kernel? Secure Boot rejects unsigned ones)" ;;
        *'GPU is lost'* | *'Unable to determine the device handle'*) fail "a GPU is lost ($line)" \
            "see 'dmesg | grep -i xid' on $HOST_NAME and restart it; replace a GPU that is lost again" ;;
        *) fail "nvidia-smi fails with status $status ($line); on the PCI bus: ${bus:-no GPU}" \
            "run nvidia-smi on $HOST_NAME, and see 'dmesg | grep -i nvrm' there" ;;
    esac
}
