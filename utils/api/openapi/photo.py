"""Responses of the official weights for the sample image in `docs/http.md`."""

from __future__ import annotations

from typing import Any

SAMPLE = "utils/page/static/samples/balloons.jpg"
"""Path in the repository of the sample, 1280 x 853 pixels."""

BALLOON = [903, 310]
"""A point on the largest balloon."""
SAILS, HULL, REFLECTION = [390, 660], [400, 745], [400, 800]
"""Points on the sailing boat and below it."""

BOAT: dict[str, Any] = {"object": 0, "score": 1.0013, "area": 23228, "box": [304, 531, 488, 770]}
"""Mask of positive clicks on sails and hull and a negative one on the reflection, given the mask of the sails."""
ENCODED = (
    '{"image_id":"c0239d…","width":1280,"height":853,"weights":{"name":"official","sha256":"6dbb…","trained":true,'
    '"note":"The official MobileSAM checkpoint, mobile_sam.pt."},"engine":{"encoder":"…",'
    '"decoder":"…"},"model_version":1}'
)
DOCUMENT = (
    '{"image_id":"c0239d…","width":1280,"height":853,"weights":{…},"engine":{…},"model_version":1,"masks":[{"object":0,'
    '"score":0.8769,"area":55171,"box":[780,174,1034,476],"rle":{"size":[853,1280],"counts":"…"}}]}'
)
"""Response with the mask of a click on the balloon, shortened by …."""
EVERYTHING = (
    '{"image_id":"c0239d…","width":1280,"height":853,…,"masks":[{"segmentation":{"size":[853,1280],"counts":"…"},'
    '"area":23300,"bbox":[304,532,184,238],"predicted_iou":1.022,"point_coords":[[400.0,693.0625]],'
    '"stability_score":0.9808,"crop_box":[0,0,1280,853]},…]}'
)
"""Response to a grid of 8 x 8 points with the first of fourteen records, which is the boat."""
PROGRESS = '{"done":0,"total":4}\n…\n{"done":4,"total":4,"result":{"image_id":"c0239d…",…}}'
INFO = (
    '{"version":"0.1.0","weights":{…},"engine":{…},"key_needed":false,"limits":{"max_body_bytes":33554432,'
    '"max_image_pixels":25000000,"max_objects":256},"model_versions":[1]}'
)
