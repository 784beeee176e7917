"""The generated documents fit the model, and the schema judges as the model does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wheelfab import facts
from wheelfab.matrix_docs import SECTIONS, documents, reference, schema, write_docs
from wheelfab.matrix_file import MatrixFile

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", documents())
def test_what_is_checked_in_is_what_is_generated(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == documents()[name]


def test_stale_files_are_named_and_written_only_without_check(tmp_path: Path) -> None:
    assert write_docs(tmp_path, documents(), check=True) == ("matrix.schema.json", "matrix.md")
    assert list(tmp_path.iterdir()) == []
    assert write_docs(tmp_path, documents()) == ("matrix.schema.json", "matrix.md")
    assert write_docs(tmp_path, documents(), check=True) == ()
    (tmp_path / "matrix.md").write_text("edited by hand", encoding="utf-8")
    assert write_docs(tmp_path, documents()) == ("matrix.md",)


def test_every_key_of_every_table_is_explained() -> None:
    text = reference()
    for _, table in SECTIONS:
        for name, field in table.model_fields.items():
            assert field.description, name
            assert f"| `{field.alias or name}` |" in text


def test_every_rule_and_every_known_release_is_in_the_reference() -> None:
    text = reference()
    for rule in facts.rules().values():
        assert f"| `{rule.id}` |" in text
        assert rule.text in text
    cuda = [release.version for release in facts.cuda_releases()]
    torch = [release.version for release in facts.torch_releases()]
    for version in cuda + torch:
        assert f"| {version} |" in text


def test_the_schema_knows_the_sections_and_refuses_other_keys() -> None:
    document = json.loads(schema())
    assert set(document["properties"]) == set(MatrixFile.model_fields)
    assert document["additionalProperties"] is False
    variant = document["$defs"]["VariantTable"]
    assert variant["additionalProperties"] is False
    assert {"cuda", "cuda-api", "torch-index", "size-budget"} <= set(variant["properties"])
