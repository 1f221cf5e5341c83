"""X-AnyLabeling's `RemoteServer` without a window: a JSON line in for each prediction, a JSON line
out.

It runs in X-AnyLabeling's environment: `client.py URL KEY HOME`.
"""

import json
import sys

from anylabeling import config
from PyQt6.QtGui import QImage

url, key, home = sys.argv[1:]
config.set_work_directory(home)
config.current_config_file = json.dumps(
    {"remote_server_settings": {"server_url": url, "api_key": key}}
)

from anylabeling.services.auto_labeling.remote_server import RemoteServer  # noqa: E402 - reads the settings

messages: list[str] = []
server = RemoteServer({"type": "remote_server", "display_name": "Remote-Server"}, messages.append)
models = server.get_available_models()
server.set_model_id(next(iter(models)))
print(json.dumps(models), flush=True)
for line in sys.stdin:
    wanted = json.loads(line)
    messages.clear()
    server.set_task(wanted["task"])
    server.set_auto_labeling_marks(wanted["marks"])
    server.set_mask_fineness(wanted["fineness"])
    server.set_auto_labeling_conf(wanted["conf"])
    result = server.predict_shapes(QImage(wanted["path"]), wanted["path"])
    shapes = [
        {
            "label": shape.label,
            "type": shape.shape_type,
            "points": [[point.x(), point.y()] for point in shape.points],
            "closed": shape.is_closed(),
            "score": shape.score,
        }
        for shape in result.shapes
    ]
    answer = {
        "shapes": shapes,
        "replace": result.replace,
        "description": result.description,
        "messages": messages,
        "batch": server.get_batch_processing_mode(),
    }
    print(json.dumps(answer), flush=True)
