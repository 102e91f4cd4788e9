#!/bin/bash
# uses: gpu/remove
# Nothing of ours starts at the next boot.

gpu_leave() {
    remove_gpu_units
    remove_roce_unit
}
