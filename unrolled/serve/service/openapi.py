"""The OpenAPI document, and its page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code,pre{font-family:ui-monospace,monospace;font-size:.9em}h2{margin-top:2rem;font-size:1.1rem}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #ddd;padding:.2rem .8rem .2rem 0;text-align:left;"
    "vertical-align:top}b{display:inline-block;min-width:4rem}"
)


def describe(app: FastAPI, bodies: Iterable[type[BaseModel]]) -> None:
    """Give an app an OpenAPI document with the schemas of bodies that raw routes read."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, schemas = models_json_schema(
                [(body, "validation") for body in dict.fromkeys(bodies)], ref_template="#/components/schemas/{model}"
            )
            components = made.setdefault("components", {})
            components["schemas"] = {**components.get("schemas", {}), **schemas.get("$defs", {})}
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def page(document: dict[str, Any]) -> str:
    """The document as a page that needs no script and nothing from elsewhere."""
    schemas = document.get("components", {}).get("schemas", {})
    parts = []
    for path, verbs in document["paths"].items():
        for verb, one in verbs.items():
            parts.append(f"<h2><b>{verb.upper()}</b> <code>{escape(path)}</code></h2>")
            parts.append(f"<p>{escape(one.get('description') or one.get('summary', ''))}</p>")
            content = one.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("schema", {})
            parts.append(_table(_resolved(body, schemas), schemas))
    title = escape(document["info"]["title"])
    note = "<p>The same for programs: <a href='openapi.json'>openapi.json</a></p>"
    head = f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
    return f"{head}<h1>{title}</h1>{note}{''.join(parts)}"


def _table(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = []
    for name, value in schema.get("properties", {}).items():
        rows.append(_row(name, value))
        inner = _resolved(value, schemas)
        if name == "options":
            rows += [_row(f"options.{key}", one) for key, one in inner.get("properties", {}).items()]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _row(name: str, value: dict[str, Any]) -> str:
    return (
        f"<tr><td><code>{escape(name)}</code></td><td><code>{escape(_kind(value))}</code></td>"
        f"<td>{escape(value.get('description', ''))}</td></tr>"
    )


def _kind(value: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "anyOf" in value:
        return " | ".join(_kind(one) for one in value["anyOf"] if one.get("type") != "null")
    if "enum" in value:
        return " | ".join(map(str, value["enum"]))
    if value.get("type") == "array":
        return f"[{_kind(value.get('items', {}))}]"
    return str(value.get("type", "any"))


def _resolved(value: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schemas.get(str(value.get("$ref", "")).rpartition("/")[2], value)
    return found
