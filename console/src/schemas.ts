// JSON Schemas as forms show them. The server gets what it asked for either way: only what people
// see is changed, and the server checks what they send.

import type { RJSFSchema, UiSchema } from "@rjsf/utils";
import type { Prompt, ResourceTemplate, Schema } from "./protocol";
import { isObject } from "./protocol";

const MAX_DEPTH = 40;

/** `X | null` as an optional X, titled options with their titles, sets of options as sets. */
export function forForm(schema: Schema): RJSFSchema {
  return simplified(schema, 0) as RJSFSchema;
}

function simplified(node: unknown, depth: number): unknown {
  if (depth > MAX_DEPTH) return {};
  if (Array.isArray(node)) return node.map((item) => simplified(item, depth + 1));
  if (!isObject(node)) return node;
  let schema: Schema = node;
  const options: unknown[] = Array.isArray(schema.anyOf) ? schema.anyOf : [];
  const real = options.filter((option) => !(isObject(option) && option.type === "null"));
  if (real.length === 1 && options.length === 2 && isObject(real[0])) {
    const { anyOf: _, ...rest } = schema;
    schema = { ...real[0], ...rest };
  }
  if (schema.default === null) {
    const { default: _, ...rest } = schema;
    schema = rest;
  }
  if (Array.isArray(schema.enum) && Array.isArray(schema.enumNames)) {
    const { enum: values, enumNames: names, ...rest } = schema;
    const oneOf = values.map((value, i) => ({ const: value, title: String(names[i] ?? value) }));
    schema = { ...rest, oneOf };
  }
  if (schema.type === "array" && isObject(schema.items) && isSet(schema.items)) {
    schema = { ...schema, uniqueItems: true };
  }
  const result: Schema = {};
  for (const [keyword, value] of Object.entries(schema)) {
    if (["properties", "$defs", "definitions", "patternProperties"].includes(keyword)) {
      result[keyword] = isObject(value)
        ? Object.fromEntries(
            Object.entries(value).map(([name, inner]) => [name, simplified(inner, depth + 1)]),
          )
        : value;
    } else if (
      ["items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems"].includes(keyword)
    ) {
      result[keyword] = simplified(value, depth + 1);
    } else if (keyword !== "$schema" && keyword !== "$id") result[keyword] = value;
  }
  return result;
}

function isSet(items: Schema): boolean {
  const options: unknown = items.anyOf ?? items.oneOf;
  const titled = Array.isArray(options) && options.every((o) => isObject(o) && "const" in o);
  return Array.isArray(items.enum) || titled;
}

/** Which widgets suit the top-level fields. */
export function uiFor(schema: RJSFSchema): UiSchema {
  const ui: UiSchema = {};
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    if (!isObject(property)) continue;
    if (
      property.type === "array" &&
      property.uniqueItems &&
      isObject(property.items) &&
      isSet(property.items)
    ) {
      ui[name] = { "ui:widget": "checkboxes" };
    } else if (property.type === "boolean" && "default" in property === false) {
      ui[name] = { "ui:widget": "radio", "ui:options": { inline: true } };
    } else if (property.type === "string" && (property.maxLength ?? 0) > 200) {
      ui[name] = { "ui:widget": "textarea" };
    }
  }
  return ui;
}

export function hasFields(schema: Schema): boolean {
  return isObject(schema.properties) && Object.keys(schema.properties).length > 0;
}

export function promptSchema(prompt: Prompt): Schema {
  const args = Array.isArray(prompt.arguments) ? prompt.arguments.filter(isObject) : [];
  const properties = args.map((arg) => [
    arg.name,
    { type: "string", title: arg.title ?? arg.name, description: arg.description },
  ]);
  return {
    type: "object",
    properties: Object.fromEntries(properties),
    required: args.filter((arg) => arg.required).map((arg) => arg.name),
  };
}

const EXPRESSION = /\{(\+?)([^{}]+)\}/g;

export function templateSchema(template: ResourceTemplate): Schema {
  const names = [...template.uriTemplate.matchAll(EXPRESSION)].map((match) => match[2]!);
  return {
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, { type: "string", title: name }])),
    required: names,
  };
}

/** The URI that a template and its values make (RFC 6570, the two forms that resources use). */
export function expand(template: string, values: Record<string, unknown>): string {
  return template.replace(EXPRESSION, (_, plus: string, name: string) => {
    const value = String(values[name] ?? "");
    if (!plus) return strict(value);
    return value.replace(/[^:/?#[\]@!$&'()*+,;=]+/g, strict);
  });
}

function strict(value: string): string {
  return encodeURIComponent(value).replace(
    /[!'()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
