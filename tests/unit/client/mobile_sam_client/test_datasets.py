"""`masks_for` with supervision's own data sets."""

import numpy as np
import pytest
import supervision

from mobile_sam_client import InvalidImage
from tests.unit.client.mobile_sam_client.commands.fake_sam import FakeSam, picture
from tests.unit.client.mobile_sam_client.fake_service import problem_reply


@pytest.fixture
def dataset(tmp_path) -> supervision.DetectionDataset:
    """Two images of 60 x 40 pixels: four boxes, of which the service may see two, and none."""
    paths = [str(tmp_path / name) for name in ("a.png", "b.png")]
    for number, path in enumerate(paths):
        (tmp_path / path).write_bytes(picture(number))
    boxes = np.array([[1, 2, 11, 14], [50, 30, 70, 50], [5, 5, 5, 9], [61, 1, 70, 5]], float)
    classes = np.array([1, 0, 1, 1])
    found = supervision.Detections(
        boxes, class_id=classes, data={"by": np.array(["me", "you", "me", "me"])}
    )
    return supervision.DetectionDataset(
        ["cat", "dog"],
        paths,
        dict(zip(paths, (found, supervision.Detections.empty()), strict=True)),
    )


def test_each_box_gets_a_mask(make, dataset):
    sam = FakeSam()
    found = make(sam).masks_for(dataset)
    assert isinstance(found, supervision.DetectionDataset)
    assert (found.classes, found.image_paths) == (dataset.classes, dataset.image_paths)
    first, second = (found.annotations[path] for path in dataset.image_paths)
    assert first.xyxy.tolist() == dataset.annotations[dataset.image_paths[0]].xyxy.tolist()
    assert first.mask.shape == (4, 40, 60)
    assert first.mask[0, 2:14, 1:11].all()
    assert first.mask.sum(axis=(1, 2)).tolist() == [120, 100, 0, 0]
    assert first.data["mask_score"].tolist() == [0.75, 0.75, 0, 0]
    assert first.data["box_iou"].tolist() == [1, 1, 0, 0]
    assert list(first.data["note"]) == [
        "",
        "cut to the image",
        "the box is empty",
        "outside of the image",
    ]
    assert list(first.data["by"]) == ["me", "you", "me", "me"]
    assert list(first.data["class_name"]) == ["dog", "cat", "dog", "dog"]
    assert second.mask.shape == (0, 40, 60)
    assert [path for path, _ in sam.requests] == ["/mobile_sam"]
    assert dataset.annotations[dataset.image_paths[0]].mask is None


def test_masks_can_be_saved_by_supervision(make, dataset, tmp_path):
    found = make(FakeSam()).masks_for(dataset)
    with pytest.warns(UserWarning, match="returned no polygons"):  # of the boxes without a mask
        found.as_coco(annotations_path=str(tmp_path / "masks.json"))
    again = supervision.DetectionDataset.from_coco(
        str(tmp_path), str(tmp_path / "masks.json"), force_masks=True
    )
    (name,) = (path for path in again.image_paths if path.endswith("a.png"))
    assert again.annotations[name].mask[0, 2:14, 1:11].all()


def test_rejected_image_is_an_error(make, dataset):
    sam = FakeSam()
    sam.replies[picture(0)] = problem_reply(422, "invalid-image")
    with pytest.raises(InvalidImage):
        make(sam).masks_for(dataset)
