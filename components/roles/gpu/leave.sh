#!/bin/bash
# uses: gpu/remove
# Remove the units, so that they do not start at the next boot.

gpu_leave() {
    remove_gpu_units
    remove_roce_unit
}
