#!/bin/bash
# Three jobs, one after the other. Run it on the head node as it is (bash chain.sh): it only submits.
# The second begins when the first has ended well, the third when the second has ended in any way.
set -euo pipefail
submit() { sbatch --parsable --ntasks=1 --time=5 --output=chain.out --open-mode=append "$@"; }
prepare=$(submit --job-name=prepare --wrap 'echo prepared')
work=$(submit --job-name=work --dependency="afterok:$prepare" --kill-on-invalid-dep=yes --wrap 'echo worked')
submit --job-name=clean --dependency="afterany:$work" --wrap 'echo cleaned'
