#!/usr/bin/env bash
# own_pictures.sh [IMAGE_SIZE]: a new user's way from a folder of 3,000 pictures in all sizes, modes and formats to a
# private generator at epsilon 3. Its images have 28 pixels a side, unless IMAGE_SIZE says otherwise. `datalens check`
# looks at the folder, and the commands that it suggests are run as they stand. The pictures are from Fashion-MNIST
# where TFDS_DATA_DIR has it, else from the embedded digits. Minutes on 2 cores.
source "$(dirname "${BASH_SOURCE[0]}")/_common.sh"
install eval
mkdir -p "$runs"
work="$(mktemp -d "$runs/own_pictures.XXXXXX")"
PYTHONPATH="$project" TF_CPP_MIN_LOG_LEVEL=3 "$venv/bin/python" - "$work/my pictures – été" <<'END'
import pathlib
import sys

import numpy as np

from datalens_tf import load_dataset
from datalens_tf.errors import DataError
from tests import hostile_folder

try:
    train, test = (load_dataset("fashion_mnist", split=split) for split in ("train", "test"))
except DataError:
    train, test = (load_dataset("digits", split=split) for split in ("train", "test"))
images = np.concatenate([train.images[:3000], test.images[:600]])
labels = np.concatenate([train.labels[:3000], test.labels[:600]])
names = [name.replace("/", " or ") for name in train.class_names]
made = hostile_folder.write(pathlib.Path(sys.argv[1]), images, labels, names, num_test=len(test.images[:600]))
print(f"{made.num_train} pictures to train on, {made.num_test} to test on, {len(made.broken)} of them broken")
END

cd "$work"
export TF_CPP_MIN_LOG_LEVEL=3
datalens check "my pictures – été" --epsilon 3 --image_size "${1:-28}" --color grey | tee checked
sed '1,/^NEXT$/d' checked >commands
time source ./commands
for made in runs/*/samples.png runs/*/privacy.txt serving/*/1/saved_model.pb ./*.tflite; do
  [[ -s "$made" ]] || { echo "Missing $work/$made" >&2; exit 1; }
done
datalens verify runs/*
echo "All of it is in $work."
