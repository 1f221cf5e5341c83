"""The reference in `docs/http.md`. The page itself holds how fields, responses and problems are described."""

import re
from pathlib import Path

from utils.api.openapi import document
from utils.api.openapi.problems import IMAGE_PROBLEMS, MASK_PROBLEMS, SERVICE_PROBLEMS, UNAUTHORIZED
from utils.api.openapi.reference import reference

ROOT = Path(__file__).resolve().parents[5]
PAGE = reference()
WHOLE = document(need_key=True)


def test_page_is_up_to_date():
    assert (ROOT / "docs" / "http.md").read_text() == PAGE, "run `make docs`"


def test_page_has_every_operation_and_field():
    for path, methods in WHOLE["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            assert f"\n## {name}\n\n{operation['summary']}. " in PAGE or f"\n- `{name}`: " in PAGE
            assert "requestBody" not in operation or f"\n## {name}\n" in PAGE
    assert "<<" not in PAGE
    for schema in WHOLE["components"]["schemas"].values():
        for name in schema["properties"]:
            assert re.search(rf"^- `{name}`", PAGE, re.MULTILINE), name


def test_page_has_every_problem():
    table = dict(re.findall(r"^- (\d+): (.+)$", PAGE, re.MULTILINE))
    for problem in (*UNAUTHORIZED, *SERVICE_PROBLEMS, *IMAGE_PROBLEMS):
        assert f"`{problem.slug}`\\*" in table[str(problem.status)].split(", ")
    for problem in MASK_PROBLEMS:
        assert f"`{problem.slug}`" in table[str(problem.status)].split(", ")
