#!/bin/bash
# Download the images of a list with their texts, and write WebDataset shards (KEY.jpg, KEY.txt, KEY.json).
# The list is a CSV file with the columns url and caption. Once: python3 -m venv ~/img2dataset &&
# ~/img2dataset/bin/pip install img2dataset==1.47.0
# sbatch download_images.sh LIST.csv FOLDER [option of img2dataset...]
#SBATCH --job-name=download --ntasks=1 --cpus-per-task=8 --time=12:00:00 --requeue --open-mode=append
# A job that was requeued continues with the shards that are missing.
programs=${IMG2DATASET:-$HOME/img2dataset}/bin
"$programs/img2dataset" --url_list "$1" --input_format csv --url_col url --caption_col caption --output_folder "$2" \
    --output_format webdataset --processes_count "${SLURM_CPUS_PER_TASK:-2}" --incremental_mode incremental "${@:3}" ||
    exit
# img2dataset succeeds also without any image.
exec "$programs/python" - "$2" <<'END'
import json, pathlib, sys

shards = [json.loads(file.read_text()) for file in pathlib.Path(sys.argv[1]).glob("*_stats.json")]
good, total = (sum(shard[name] for shard in shards) for name in ("successes", "count"))
print(f"downloaded {good} of {total} images into {len(shards)} shards")
sys.exit(0 if good else "download: no image was downloaded; see status_dict in *_stats.json")
END
