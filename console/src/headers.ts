// The headers of a request: the names and arguments that are repeated for proxies
// (streamable-http §Custom Headers), and challenges that come back (RFC 9110 §11.6.1).

import type { Schema } from "./protocol";
import { isObject } from "./protocol";

const PLAIN = /^[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?$/;

/** A value as a header may carry it: as it is, or in the Base64 form. */
export function encodeValue(value: string): string {
  if (PLAIN.test(value) && !value.startsWith("=?base64?")) return value;
  const bytes = new TextEncoder().encode(value);
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return `=?base64?${btoa(binary)}?=`;
}

/** The `Mcp-Param-*` headers that a tool's schema asks for. */
export function paramHeaders(schema: Schema | undefined, args: unknown): Record<string, string> {
  const headers: Record<string, string> = {};
  visit(schema, args);
  return headers;

  function visit(node: Schema | undefined, value: unknown): void {
    if (!isObject(node?.properties) || !isObject(value)) return;
    for (const [name, property] of Object.entries(node.properties)) {
      if (!isObject(property) || !Object.hasOwn(value, name)) continue;
      const given = value[name];
      const header = property["x-mcp-header"];
      if (typeof header === "string" && ["string", "number", "boolean"].includes(typeof given)) {
        headers[`Mcp-Param-${header}`] = encodeValue(String(given));
      }
      visit(property, given);
    }
  }
}

export interface Challenge {
  error?: string;
  description?: string;
  scope?: string;
  resourceMetadata?: string;
}

/** The Bearer challenge of a `WWW-Authenticate` header. */
export function bearerChallenge(header: string | null): Challenge | null {
  const start = header === null ? -1 : header.search(/(^|[\s,])bearer(?=\s|,|$)/i);
  if (header === null || start < 0) return null;
  const parameters: Record<string, string> = {};
  const part = /\s*,?\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))/y;
  part.lastIndex = start + header.slice(start).search(/bearer/i) + "bearer".length;
  for (let match = part.exec(header); match !== null; match = part.exec(header)) {
    const name = match[1]!.toLowerCase();
    parameters[name] ??= match[2]?.replace(/\\(.)/g, "$1") ?? match[3] ?? "";
  }
  return {
    error: parameters.error,
    description: parameters.error_description,
    scope: parameters.scope,
    resourceMetadata: parameters.resource_metadata,
  };
}
