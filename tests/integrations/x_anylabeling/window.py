"""X-AnyLabeling's window: open an image, choose the remote server, add points by mouse, print what
the person sees.

It runs in X-AnyLabeling's environment: `window.py URL KEY HOME IMAGE X,Y ... [PICTURE]`. With
`QT_QPA_PLATFORM=offscreen` it needs no display.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from anylabeling import config
from anylabeling.resources import resources  # noqa: F401 - the window's icons and models
from anylabeling.views.labeling.utils.qt import apply_application_font
from anylabeling.views.labeling.utils.theme import get_app_stylesheet, init_theme
from PyQt6.QtCore import QCoreApplication, QPointF, Qt
from PyQt6.QtTest import QTest
from PyQt6.QtWidgets import QApplication

WIDTH, HEIGHT = 1180, 720
TIMEOUT_S, SETTLE_ROUNDS = 60, 70

url, key, home, image, *rest = sys.argv[1:]
picture = None if "," in rest[-1] else rest.pop()
points = [tuple(map(int, text.split(","))) for text in rest]
config.set_work_directory(home)
config.current_config_file = str(Path(home) / ".xanylabelingrc")
remote = {"server_url": url, "api_key": key, "timeout": TIMEOUT_S}
Path(config.current_config_file).write_text(
    json.dumps({"remote_server_settings": remote, "language": "en_US"})
)

from anylabeling.views.mainwindow import MainWindow  # noqa: E402 - reads the settings

settings = config.get_config(config.current_config_file)
QCoreApplication.setAttribute(Qt.ApplicationAttribute.AA_ShareOpenGLContexts)
app = QApplication(sys.argv[:1])
apply_application_font(settings["font_family"])
init_theme("light")
app.setStyleSheet(get_app_stylesheet())
window = MainWindow(app, config=settings, filename=image)
window.resize(WIDTH, HEIGHT)
window.show()
view = window.labeling_widget.view
panel, canvas = view.auto_labeling_widget, view.canvas
manager = panel.model_manager


def wait(condition: Callable[[], object]) -> None:
    """Process events until the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, panel.model_status_label.text()
        app.processEvents()
        time.sleep(0.01)


def settle() -> None:
    """Process events for a while: the window lays itself out."""
    for _ in range(SETTLE_ROUNDS):
        app.processEvents()
        time.sleep(0.01)


wait(lambda: view.image is not None and not view.image.isNull())
if not panel.isVisible():
    view.toggle_auto_labeling_widget()
(model,) = (
    entry for entry in manager.get_model_configs() if entry["config_file"] == ":/remote_server.yaml"
)
manager.load_model(model["config_file"])
wait(lambda: manager.loaded_model_config and panel.remote_server_select_combobox.count())
panel.model_selection_button.setText(model["display_name"])
settle()
panel.button_add_point.click()
for x, y in points:
    statuses: list[str] = []
    manager.new_model_status.connect(statuses.append)
    place = ((QPointF(x, y) + canvas.offset_to_center()) * canvas.scale).toPoint()
    QTest.mouseMove(canvas, place)
    QTest.mouseClick(canvas, Qt.MouseButton.LeftButton, pos=place)
    wait(lambda: any("Finished" in status for status in statuses))  # noqa: B023 - of this click
    settle()
if picture:
    window.grab().save(picture)
seen = {
    "shapes": [[shape.label, shape.shape_type] for shape in canvas.shapes],
    "description": view.shape_text_edit.toPlainText(),
    "widgets": [
        name for name in panel.supported_remote_widgets if getattr(panel, name).isVisible()
    ],
    "replaces_without_an_answer": manager.loaded_model_config["model"].replace,
}
print(json.dumps(seen), flush=True)
os._exit(0)  # the window would ask whether to save
