#!/bin/bash
# uses: gpu/found
# The GPUs that the machine has, held against what the config promises.
#
# NODE_GPU_KIND, NODE_GPU_COUNT   empty and 0 where the config promises none

# GPUs that count, of GPUS (the lines of gpu_lines): those with a device file here, that show no display, of one kind: the
# one that is promised, or the one with the most memory together. GPU_LEFT_OUT says which do not count, and why.
choose_gpus() {
    local minor bus mig display memory name kind best=-1 line kept=()
    local -A total=()
    GPU_LEFT_OUT=''
    while IFS=$'\t' read -r minor bus mig display memory name; do
        [[ $minor =~ ^[0-9]{1,3}$ && -e /dev/nvidia$minor ]] || continue
        # A card for data centres may say "Display Mode: Enabled" and has no display; what counts is whether one is shown.
        if [ "$display" = Enabled ] || [[ $name == *Display* ]]; then
            GPU_LEFT_OUT+="; GPU $minor ($name at $bus) shows a display and is left to it"
            continue
        fi
        kind=$(gpu_kind_of "$name")
        [[ $memory =~ ^[0-9]{1,8}$ ]] || memory=0
        total[$kind]=$((${total[$kind]:-0} + memory))
        kept+=("$minor"$'\t'"$bus"$'\t'"$mig"$'\t'"$memory"$'\t'"$kind")
    done <<<"$GPUS"
    GPU_KIND=$NODE_GPU_KIND
    if [ -z "$GPU_KIND" ]; then
        for kind in "${!total[@]}"; do
            if [ "${total[$kind]}" -gt "$best" ]; then GPU_KIND=$kind best=${total[$kind]}; fi
        done
    fi
    GPU_DEVICES='' GPU_COUNT=0 GPU_MEMORY=0
    for line in "${kept[@]}"; do
        IFS=$'\t' read -r minor bus mig memory kind <<<"$line"
        if [ "$kind" != "$GPU_KIND" ]; then
            GPU_LEFT_OUT+="; GPU $minor ($kind at $bus) is of another kind"
            continue
        fi
        [ "$mig" != Enabled ] || fail \
            "MIG is on at GPU $minor ($bus): its parts cannot reach one another, and NCCL takes one of them at most" \
            "'nvidia-smi -i $minor -mig 0' on $HOST_NAME (a restart where it asks for one), or leave the machine out"
        GPU_DEVICES+=${GPU_DEVICES:+,}$minor
        GPU_COUNT=$((GPU_COUNT + 1))
        if [ "$GPU_COUNT" -eq 1 ] || [ "$memory" -lt "$GPU_MEMORY" ]; then GPU_MEMORY=$memory; fi
    done
}

# Addresses on the PCI bus that nvidia-smi does not show. (It writes the domain with eight digits.)
lost_gpus() {
    local bus
    for bus in $1; do
        cut -f 2 <<<"$GPUS" | grep -ixE "0*$bus" >/dev/null || printf '; %s is on the PCI bus and nvidia-smi does not show it' "$bus"
    done
}

kinds_there() {
    local name
    cut -f 6 <<<"$GPUS" | while read -r name; do
        [ -z "$name" ] || printf '%s\n' "$(gpu_kind_of "$name")"
    done | sort -u
}

hold_against_promise() {
    local bus=$1 there
    if [ "$NODE_GPU_COUNT" -eq 0 ] || [ "$NODE_GPU_COUNT" -eq "$GPU_COUNT" ]; then return 0; fi
    there=$(kinds_there)
    if [ -n "$there" ] && ! grep -qx "$NODE_GPU_KIND" <<<"$there"; then
        fail "the config promises $NODE_GPU_COUNT GPUs ($NODE_GPU_KIND), and the GPUs here are $(tr '\n' ' ' <<<"$there")" \
            "write gpu: KIND:COUNT of these for $HOST_NAME in the config, or leave gpu out"
    fi
    fail "the config promises $NODE_GPU_COUNT GPUs ($NODE_GPU_KIND), this machine shows $GPU_COUNT in /dev/nvidia*$GPU_LEFT_OUT$(lost_gpus "$bus")" \
        "correct gpu: of $HOST_NAME in the config, or see nvidia-smi and 'dmesg | grep -i xid' there"
}

# Without it CUDA starts on no GPU of a machine whose NVLinks go through switches.
fabric_manager_runs() {
    if systemd-detect-virt -cq 2>/dev/null || [ -z "$(nvidia_on_the_bus 0680)" ]; then return 0; fi
    systemctl -q is-active nvidia-fabricmanager || fail \
        "the fabric manager does not run, and this machine's NVLinks go through NVSwitches: CUDA would start on no GPU" \
        "'systemctl enable --now nvidia-fabricmanager' on $HOST_NAME; its package must be of the driver's version, $GPU_DRIVER"
}

# The PCI bus and the device files that GPUs are expected by, or the config's word. A container sees its host's bus,
# which says nothing of what it was given.
gpus_expected() {
    [ "$NODE_GPU_COUNT" -ne 0 ] || compgen -G '/dev/nvidia[0-9]*' >/dev/null || {
        [ -n "$1" ] && command -v nvidia-smi >/dev/null && ! systemd-detect-virt -cq 2>/dev/null
    }
}

# GPUS and GPU_DRIVER by nvidia-smi; REASON where there is none or it fails, although there are GPUs.
query_gpus() {
    local bus=$1 said status=0
    if ! command -v nvidia-smi >/dev/null; then
        if [ -z "$bus" ] && ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then return 0; fi
        fail "there is no nvidia-smi: the NVIDIA driver is not installed, so that no job can use the GPUs (on the PCI bus: ${bus//$'\n'/ })" \
            "install the driver on $HOST_NAME ('ubuntu-drivers install --gpgpu', or nvidia-driver of Debian's non-free), then run up again"
    fi
    nvidia_smi "$SAID" -q -x || status=$?
    said=$(<"$SAID")
    if [ "$status" -eq 0 ]; then
        GPUS=$(gpu_lines <<<"$said")
        GPU_DRIVER=$(head -n 1 <<<"$GPUS" | grep -xE '[0-9][0-9A-Za-z.-]{0,40}' || :) # what is no version is none
        GPUS=$(sed 1d <<<"$GPUS")
        [ -n "$GPUS" ] || fail "nvidia-smi ends well and names no GPU (on the PCI bus: ${bus//$'\n'/ })" \
            "run 'nvidia-smi -q -x' on $HOST_NAME"
    elif [ "$status" -ne 6 ] || [ -n "$bus" ]; then # 6: it finds no GPU
        nvidia_smi_failed "$status" "$said" "${bus//$'\n'/ }"
    fi
}

gpu_check() {
    local bus links=0
    GPU_DRIVER='' GPUS='' SAID=''
    make_temporary SAID
    bus=$(nvidia_on_the_bus 03)
    if gpus_expected "$bus"; then
        query_gpus "$bus"
    elif [ -n "$bus" ]; then
        note "NVIDIA GPUs without a driver, which no job gets: ${bus//$'\n'/ }"
    fi
    choose_gpus
    hold_against_promise "$bus"
    if [ "$GPU_COUNT" -eq 0 ]; then
        GPU_KIND=''
    else
        fabric_manager_runs
        if nvidia_smi "$SAID" nvlink -s; then links=$(least_links <"$SAID"); fi
    fi
    [ -z "$GPU_LEFT_OUT" ] || note "GPUs that no job gets: ${GPU_LEFT_OUT#; }"
    result gpus "$GPU_COUNT"
    result gpu_kind "$(json_string "$GPU_KIND")"
    result gpu_devices "[$GPU_DEVICES]"
    result gpu_memory_mb "$GPU_MEMORY"
    result gpu_driver "$(json_string "$GPU_DRIVER")"
    result gpu_nvlinks "$links"
}
