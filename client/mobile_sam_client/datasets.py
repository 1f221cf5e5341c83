"""Detection data sets: images with boxes and points, read from files of many formats.

    from pathlib import Path
    from mobile_sam_client.datasets import read_dataset

    folder = Path("boats")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    data = read_dataset("yolo", names, lambda name: (folder / name).open("rb"))
    data.images["images/balloons.jpg"].objects[0].category["name"]  # 'boat'

`mobile_sam_client.batches` takes the `request` of an image, and returns the masks of its objects.
"""

from mobile_sam_client._datasets.dataset import Dataset, DatasetImage, DatasetObject
from mobile_sam_client._datasets.image_paths import is_image
from mobile_sam_client._datasets.readers import DatasetFormat, read_dataset
from mobile_sam_client._datasets.values import DatasetError

__all__ = [
    "Dataset",
    "DatasetError",
    "DatasetFormat",
    "DatasetImage",
    "DatasetObject",
    "is_image",
    "read_dataset",
]
