// What is on the wire, revision 2026-07-28, as far as the console reads it. Types only promise
// shapes: whatever a server sends is checked where it is used.

export const VERSION = "2026-07-28";
export const META = "io.modelcontextprotocol/";

/** What JSON can say, and nobody knows what it does say before looking. */
export type Json = unknown;
export type JsonObject = { [key: string]: unknown };
export type Schema = { [keyword: string]: any };

export interface Described {
  name: string;
  title?: string;
  description?: string;
}

export interface Tool extends Described {
  inputSchema: Schema;
  outputSchema?: Schema;
  annotations?: {
    title?: string;
    readOnlyHint?: boolean;
    destructiveHint?: boolean;
    idempotentHint?: boolean;
    openWorldHint?: boolean;
  };
}

export interface Prompt extends Described {
  arguments?: (Described & { required?: boolean })[];
}

export interface Resource extends Described {
  uri: string;
  mimeType?: string;
  size?: number;
}

export interface ResourceTemplate extends Described {
  uriTemplate: string;
  mimeType?: string;
}

export interface InputRequest {
  method: string;
  params?: any;
}

export interface RpcError {
  code: number;
  message: string;
  data?: Json;
}

export interface Notification {
  method: string;
  params?: any;
}

export interface Request {
  jsonrpc: "2.0";
  id: number;
  method: string;
  params: JsonObject;
}

export interface Capabilities {
  form: boolean;
  url: boolean;
  sampling: boolean;
  tools: boolean;
  roots: boolean;
}

/** What the console declares, as `io.modelcontextprotocol/clientCapabilities`. */
export function declared(able: Capabilities): JsonObject {
  const elicitation: JsonObject = {};
  if (able.form) elicitation.form = {};
  if (able.url) elicitation.url = {};
  const capabilities: JsonObject = {};
  if (able.form || able.url) capabilities.elicitation = elicitation;
  if (able.sampling) capabilities.sampling = able.tools ? { tools: {}, context: {} } : {};
  if (able.roots) capabilities.roots = {};
  return capabilities;
}

export function isObject(value: unknown): value is { [key: string]: any } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function text(value: unknown): string {
  return typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
}
