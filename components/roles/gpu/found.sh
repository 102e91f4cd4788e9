#!/bin/bash
# The NVIDIA GPUs of a machine: from one nvidia-smi query, its device files and the PCI bus.

# Seconds for nvidia-smi: without a persistence daemon it wakes every GPU first.
GPU_LIMIT=60

# Addresses of NVIDIA's devices of a PCI class (03 display and 3D controllers, 0680 NVSwitches), one a line.
nvidia_on_the_bus() {
    local vendor device class
    while read -r vendor; do
        device=${vendor%/vendor}
        class=$(cat "$device/class")
        case $class in 0x"$1"*) printf '%s\n' "${device##*/}" ;; esac
    done < <(grep -slx 0x10de /sys/bus/pci/devices/*/vendor)
}

# What a product name is called in Slurm and in the config: h100 of "NVIDIA H100 80GB HBM3". Without the maker's words, the
# size of the memory and the form of the board; what is no name then is `unknown`.
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

# Run nvidia-smi with its words in a file; 124 or 137 where it gives no answer. One that waits for a broken GPU cannot always
# be killed: it is left behind. As root it makes missing device files, which a container was not given on purpose.
nvidia_smi() {
    local said=$1
    shift
    if systemd-detect-virt -cq 2>/dev/null; then
        as_user nobody "$GPU_LIMIT" 4000000 nvidia-smi "$@" >"$said" 2>&1 </dev/null
    else
        within "$GPU_LIMIT" nvidia-smi "$@" >"$said" 2>&1 </dev/null
    fi
}

# A line a GPU, with tabs between: number of its device file, PCI address, current MIG mode, whether a display is active,
# MiB of memory, product name; the driver's version on a line before them. From nvidia-smi's XML on stdin.
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

# The least number of NVLinks that are up on any GPU, from `nvidia-smi nvlink -s` on stdin.
least_links() {
    awk '
        /^GPU [0-9]+:/ { count++; links[count] = 0 }
        /^[[:space:]]+Link [0-9]+: [0-9.]+ GB\/s/ { links[count]++ }
        END { least = count ? links[1] : 0; for (gpu in links) if (links[gpu] < least) least = links[gpu]; print least + 0 }'
}

# Why nvidia-smi failed, and what helps: in REASON and REMEDY of `fail`.
nvidia_smi_failed() {
    local status=$1 said=$2 bus=$3 what
    what=$(tr -cd '[:print:]\n' <<<"$said" | grep -m 1 . | cut -c 1-200 || :)
    case $status:$said in
        124:* | 137:*) fail "nvidia-smi gives no answer within ${GPU_LIMIT}s: a GPU or its driver hangs" \
            "see 'dmesg | grep -iE \"nvrm|xid\"' on $HOST_NAME, then restart it: nothing else brings a GPU that hangs back" ;;
        *'version mismatch'*) fail "the NVIDIA driver that runs is not the one that is installed ($what)" \
            "restart $HOST_NAME: its driver was updated under it; then run up again" ;;
        *"couldn't communicate"*) fail "the NVIDIA driver does not load ($what)" \
            "see what 'modprobe nvidia' says on $HOST_NAME ('dkms status': is there a module for this kernel? Secure Boot refuses unsigned ones)" ;;
        *'GPU is lost'* | *'Unable to determine the device handle'*) fail "a GPU is lost ($what)" \
            "see 'dmesg | grep -i xid' on $HOST_NAME and restart it; a GPU that is lost again has to be replaced" ;;
        *) fail "nvidia-smi fails with status $status ($what); on the PCI bus: ${bus:-no GPU}" \
            "run nvidia-smi on $HOST_NAME, and see 'dmesg | grep -i nvrm' there" ;;
    esac
}
