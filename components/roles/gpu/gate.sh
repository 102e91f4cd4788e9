#!/bin/bash
# The GPUs that the machine shows, held against what the config promises.
#
# NODE_GPU_KIND, NODE_GPU_COUNT   empty and 0 where the config promises none

gpu_count() { find /dev -maxdepth 1 -regex '/dev/nvidia[0-9]+' | wc -l; }

gpu_gate() {
    local gpus
    gpus=$(gpu_count)
    [ "$NODE_GPU_COUNT" -eq "$gpus" ] || [ "$NODE_GPU_COUNT" -eq 0 ] || fail \
        "the config promises $NODE_GPU_COUNT GPUs ($NODE_GPU_KIND), this machine shows $gpus in /dev/nvidia*" \
        "correct gpu: of $HOST_NAME in the config, or see nvidia-smi there"
    result gpus "$gpus"
}
