// Fields for the options that a task declares, and their values.

import { make } from "./elements.js";

const kindOf = (schema) => (schema.anyOf || [schema]).find((one) => one.type !== "null") || schema;

// The schema of a task's options in the OpenAPI document.
export function declared(document, task) {
  const name = `${task.charAt(0).toUpperCase()}${task.slice(1)}Options`;
  return document.components.schemas[name]?.properties || {};
}

export function fields(schemas, values) {
  return Object.entries(schemas).map(([name, schema]) => {
    const kind = kindOf(schema);
    const field = fieldOf(name, kind, values[name]);
    return make("label", { title: schema.description || "" }, make("code", {}, name), field,
      make("small", {}, schema.description || ""));
  });
}

function fieldOf(name, kind, value) {
  const attributes = { name, "data-kind": kind.type || "string" };
  if (kind.type === "boolean") return make("input", { ...attributes, type: "checkbox", checked: Boolean(value) });
  if (kind.enum) {
    const some = ["", ...kind.enum].map((one) => make("option", { value: one, selected: one === (value ?? "") }, one || "default"));
    return make("select", attributes, ...some);
  }
  if (kind.type === "integer" || kind.type === "number") {
    const step = kind.type === "integer" ? 1 : "any";
    return make("input", { ...attributes, type: "number", step, min: kind.minimum, max: kind.maximum, value });
  }
  const help = kind.type === "array" ? "one in each line" : null;
  return kind.type === "array"
    ? make("textarea", { ...attributes, rows: 1, placeholder: help }, (value || []).join("\n"))
    : make("input", { ...attributes, type: "text", value, spellcheck: "false" });
}

// The options that were given; what is empty is left to the model.
export function given(place) {
  const found = {};
  for (const field of place.querySelectorAll("[name]")) {
    const kind = field.dataset.kind;
    if (kind === "boolean") { if (field.checked) found[field.name] = true; continue; }
    if (field.value === "") continue;
    if (kind === "array") found[field.name] = field.value.split("\n").filter((line) => line !== "");
    else found[field.name] = kind === "integer" || kind === "number" ? Number(field.value) : field.value;
  }
  return found;
}
