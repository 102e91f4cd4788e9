#!/bin/bash
# uses: gpu/nvidia_smi
# Compare the machine's GPUs with the config.
#
# NODE_GPU_KIND, NODE_GPU_COUNT   empty and 0 if the config promises none

# Choose the GPUs for jobs from GPUS (lines of gpu_lines): those with a device file, without a display, of one kind. The
# kind is the promised one, or the one with the most memory in total. GPU_LEFT_OUT lists the others with the reason.
choose_gpus() {
    local minor bus mig display memory name kind best=-1 line candidates=()
    local -A total=()
    GPU_LEFT_OUT=''
    while IFS=$'\t' read -r minor bus mig display memory name; do
        [[ $minor =~ ^[0-9]{1,3}$ && -e /dev/nvidia$minor ]] || continue
        # Use display_active: data centre cards can have "Display Mode: Enabled" without a display.
        if [ "$display" = Enabled ] || [[ $name == *Display* ]]; then
            GPU_LEFT_OUT+="; GPU $minor ($name at $bus) shows a display"
            continue
        fi
        kind=$(gpu_kind_of "$name")
        [[ $memory =~ ^[0-9]{1,8}$ ]] || memory=0
        total[$kind]=$((${total[$kind]:-0} + memory))
        candidates+=("$minor"$'\t'"$bus"$'\t'"$mig"$'\t'"$memory"$'\t'"$kind")
    done <<<"$GPUS"
    GPU_KIND=$NODE_GPU_KIND
    if [ -z "$GPU_KIND" ]; then
        for kind in "${!total[@]}"; do
            if [ "${total[$kind]}" -gt "$best" ]; then GPU_KIND=$kind best=${total[$kind]}; fi
        done
    fi
    GPU_DEVICES='' GPU_COUNT=0 GPU_MEMORY=0
    for line in "${candidates[@]}"; do
        IFS=$'\t' read -r minor bus mig memory kind <<<"$line"
        if [ "$kind" != "$GPU_KIND" ]; then
            GPU_LEFT_OUT+="; GPU $minor ($kind at $bus) is of another kind"
            continue
        fi
        [ "$mig" != Enabled ] || fail \
            "MIG is on at GPU $minor ($bus): its instances cannot communicate, and NCCL uses at most one of them" \
            "run 'nvidia-smi -i $minor -mig 0' on $HOST_NAME (and restart it if that asks for it), or leave the machine out"
        GPU_DEVICES+=${GPU_DEVICES:+,}$minor
        GPU_COUNT=$((GPU_COUNT + 1))
        if [ "$GPU_COUNT" -eq 1 ] || [ "$memory" -lt "$GPU_MEMORY" ]; then GPU_MEMORY=$memory; fi
    done
}

# Print the PCI addresses in $1 that nvidia-smi does not show. (It prints the domain with eight digits.)
lost_gpus() {
    local bus
    for bus in $1; do
        cut -f 2 <<<"$GPUS" | grep -ixE "0*$bus" >/dev/null || printf '; %s is on the PCI bus, but nvidia-smi does not show it' "$bus"
    done
}

gpu_kinds() {
    local name
    cut -f 6 <<<"$GPUS" | while read -r name; do
        [ -z "$name" ] || printf '%s\n' "$(gpu_kind_of "$name")"
    done | sort -u
}

compare_with_config() {
    local bus=$1 kinds
    if [ "$NODE_GPU_COUNT" -eq 0 ] || [ "$NODE_GPU_COUNT" -eq "$GPU_COUNT" ]; then return 0; fi
    kinds=$(gpu_kinds)
    if [ -n "$kinds" ] && ! grep -qx "$NODE_GPU_KIND" <<<"$kinds"; then
        fail "the config promises $NODE_GPU_COUNT GPUs ($NODE_GPU_KIND), but the GPUs here are $(tr '\n' ' ' <<<"$kinds")" \
            "set gpu: KIND:COUNT for $HOST_NAME in the config to match them, or leave gpu out"
    fi
    fail "the config promises $NODE_GPU_COUNT GPUs ($NODE_GPU_KIND), this machine shows $GPU_COUNT in /dev/nvidia*$GPU_LEFT_OUT$(lost_gpus "$bus")" \
        "correct gpu: of $HOST_NAME in the config, or see nvidia-smi and 'dmesg | grep -i xid' there"
}

# Check the fabric manager: without it CUDA does not start on machines with NVSwitches.
check_fabric_manager() {
    if systemd-detect-virt -cq 2>/dev/null || [ -z "$(nvidia_on_the_bus 0680)" ]; then return 0; fi
    systemctl -q is-active nvidia-fabricmanager || fail \
        "the fabric manager does not run, and this machine has NVSwitches: CUDA would not start on its GPUs" \
        "run 'systemctl enable --now nvidia-fabricmanager' on $HOST_NAME; its package must have the driver's version, $GPU_DRIVER"
}

# Succeed if the config, device files or the PCI bus ($1) show that there are GPUs. A container sees its host's bus,
# also the GPUs that it does not have.
gpus_expected() {
    [ "$NODE_GPU_COUNT" -ne 0 ] || compgen -G '/dev/nvidia[0-9]*' >/dev/null || {
        [ -n "$1" ] && command -v nvidia-smi >/dev/null && ! systemd-detect-virt -cq 2>/dev/null
    }
}

# Set GPUS and GPU_DRIVER from nvidia-smi; fail if it is missing or fails although there are GPUs.
query_gpus() {
    local bus=$1 output status=0
    if ! command -v nvidia-smi >/dev/null; then
        if [ -z "$bus" ] && ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then return 0; fi
        fail "there is no nvidia-smi: the NVIDIA driver is not installed, so no job can use the GPUs (on the PCI bus: ${bus//$'\n'/ })" \
            "install the driver on $HOST_NAME ('ubuntu-drivers install --gpgpu', or nvidia-driver of Debian's non-free), then run up again"
    fi
    nvidia_smi "$OUTPUT_FILE" -q -x || status=$?
    output=$(<"$OUTPUT_FILE")
    if [ "$status" -eq 0 ]; then
        GPUS=$(gpu_lines <<<"$output")
        GPU_DRIVER=$(head -n 1 <<<"$GPUS" | grep -xE '[0-9][0-9A-Za-z.-]{0,40}' || :) # empty if it is not a version
        GPUS=$(sed 1d <<<"$GPUS")
        [ -n "$GPUS" ] || fail "nvidia-smi succeeds but lists no GPU (on the PCI bus: ${bus//$'\n'/ })" \
            "run 'nvidia-smi -q -x' on $HOST_NAME"
    elif [ "$status" -ne 6 ] || [ -n "$bus" ]; then # 6: it finds no GPU
        nvidia_smi_failed "$status" "$output" "${bus//$'\n'/ }"
    fi
}

gpu_check() {
    local bus links=0
    GPU_DRIVER='' GPUS='' OUTPUT_FILE=''
    make_temporary OUTPUT_FILE
    bus=$(nvidia_on_the_bus 03)
    if gpus_expected "$bus"; then
        query_gpus "$bus"
    elif [ -n "$bus" ]; then
        note "NVIDIA GPUs without a driver, which jobs cannot use: ${bus//$'\n'/ }"
    fi
    choose_gpus
    compare_with_config "$bus"
    if [ "$GPU_COUNT" -eq 0 ]; then
        GPU_KIND=''
    else
        check_fabric_manager
        if nvidia_smi "$OUTPUT_FILE" nvlink -s; then links=$(min_links <"$OUTPUT_FILE"); fi
    fi
    [ -z "$GPU_LEFT_OUT" ] || note "GPUs that jobs cannot use: ${GPU_LEFT_OUT#; }"
    result gpus "$GPU_COUNT"
    result gpu_kind "$(json_string "$GPU_KIND")"
    result gpu_devices "[$GPU_DEVICES]"
    result gpu_memory_mb "$GPU_MEMORY"
    result gpu_driver "$(json_string "$GPU_DRIVER")"
    result gpu_nvlinks "$links"
}
