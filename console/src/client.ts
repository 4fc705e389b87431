// One request and its response, over the endpoint that this page lies beside. Knows no flow.

import type { Challenge } from "./headers";
import { bearerChallenge, encodeValue } from "./headers";
import type { Capabilities, Json, JsonObject, Notification, Request, RpcError } from "./protocol";
import { declared, isObject, META, VERSION } from "./protocol";
import { events } from "./sse";

/** The endpoint: the page's own address without its last part. */
export const ENDPOINT = new URL(
  location.pathname.replace(/\/console\/?$/, "") || "/",
  location.origin,
).href;

export type Answer =
  | { kind: "result"; result: JsonObject }
  | { kind: "error"; error: RpcError }
  | { kind: "refused"; challenge: Challenge | null }
  | { kind: "failed"; reason: string };

export interface Exchange {
  answer: Answer;
  /** What came, as it came: the last message, or the text of a body that is none. */
  response: Json;
  status: number | null;
  headers: Record<string, string>;
}

export interface Wanted {
  method: string;
  params: JsonObject;
  name?: string;
  paramHeaders?: Record<string, string>;
  onNotification?: (notification: Notification) => void;
  signal?: AbortSignal;
  onSent?: (request: Request, headers: Record<string, string>) => void;
}

export interface Preferences {
  capabilities: Capabilities;
  logLevel: string;
}

/** Where the headers that say who is calling come from. */
export interface Credentials {
  headers(): Record<string, string>;
  /** Try to get better ones after a 401. Whether there are any. */
  renew(): Promise<boolean>;
}

export class Client {
  private id = 0;

  constructor(
    private readonly credentials: Credentials,
    public preferences: Preferences,
  ) {}

  async send(wanted: Wanted): Promise<Exchange> {
    const first = await this.once(wanted);
    if (first.status === 401 && (await this.credentials.renew())) return this.once(wanted);
    return first;
  }

  private async once(wanted: Wanted): Promise<Exchange> {
    const id = ++this.id;
    const meta: JsonObject = {
      [`${META}protocolVersion`]: VERSION,
      [`${META}clientInfo`]: { name: "console", version: "1" },
      [`${META}clientCapabilities`]: declared(this.preferences.capabilities),
    };
    if (wanted.onNotification) meta.progressToken = id;
    if (this.preferences.logLevel) meta[`${META}logLevel`] = this.preferences.logLevel;
    const request: Request = {
      jsonrpc: "2.0",
      id,
      method: wanted.method,
      params: { ...wanted.params, _meta: meta },
    };
    const headers: Record<string, string> = {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": VERSION,
      "Mcp-Method": wanted.method,
      ...(wanted.name === undefined ? {} : { "Mcp-Name": encodeValue(wanted.name) }),
      ...wanted.paramHeaders,
    };
    wanted.onSent?.(request, headers);
    let response: Response;
    try {
      response = await fetch(ENDPOINT, {
        method: "POST",
        headers: { ...headers, ...this.credentials.headers() },
        body: JSON.stringify(request),
        signal: wanted.signal,
        redirect: "error",
        cache: "no-store",
      });
    } catch (error) {
      return failed(null, null, reason(error));
    }
    const received = { status: response.status, headers: shown(response.headers) };
    try {
      return { ...received, ...(await read(response, id, wanted.onNotification)) };
    } catch (error) {
      return { ...failed(response.status, null, reason(error)), headers: received.headers };
    }
  }
}

async function read(
  response: Response,
  id: number,
  onNotification: Wanted["onNotification"],
): Promise<{ answer: Answer; response: Json }> {
  const type = response.headers.get("Content-Type")?.split(";")[0]?.trim().toLowerCase();
  let last: unknown = null;
  if (type === "text/event-stream" && response.body) {
    for await (const event of events(response.body)) {
      const message = parse(event);
      if (isObject(message) && typeof message.method === "string") {
        onNotification?.(message as Notification);
        continue;
      }
      last = message ?? event;
      if (isObject(message) && message.id === id) break;
    }
  } else {
    const body = await response.text();
    last = parse(body) ?? body;
  }
  return { answer: understand(response, last, id), response: (last ?? null) as Json };
}

function understand(response: Response, message: unknown, id: number): Answer {
  if (response.status === 401 || response.status === 403) {
    const challenge = bearerChallenge(response.headers.get("WWW-Authenticate"));
    if (challenge || response.status === 401) return { kind: "refused", challenge };
  }
  if (isObject(message)) {
    if (isObject(message.error) && typeof message.error.message === "string") {
      return { kind: "error", error: message.error as RpcError };
    }
    if (isObject(message.result) && message.id === id) {
      return { kind: "result", result: message.result };
    }
  }
  const what =
    message === null || message === ""
      ? "The response ended without an answer"
      : "The answer is no JSON-RPC response";
  return { kind: "failed", reason: `${what} (HTTP ${response.status})` };
}

function failed(status: number | null, response: Json, why: string): Exchange {
  return { answer: { kind: "failed", reason: why }, response, status, headers: {} };
}

function reason(error: unknown): string {
  if (error instanceof DOMException && error.name === "AbortError") return "You stopped this call";
  return "The server cannot be reached, or closed the connection";
}

function parse(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function shown(headers: Headers): Record<string, string> {
  const names = ["content-type", "www-authenticate", "retry-after"];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = headers.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
}

/** All pages of a list. */
export async function list<T>(
  client: Client,
  method: string,
  member: string,
): Promise<{ items: T[]; answer: Answer }> {
  const items: T[] = [];
  let cursor: Json | undefined;
  for (let page = 0; page < 100; page++) {
    const params: JsonObject = cursor === undefined ? {} : { cursor };
    const { answer } = await client.send({ method, params });
    if (answer.kind !== "result") return { items, answer };
    const found = answer.result[member];
    if (Array.isArray(found)) items.push(...(found.filter(isObject) as T[]));
    cursor = answer.result.nextCursor;
    if (typeof cursor !== "string") return { items, answer };
  }
  return { items, answer: { kind: "failed", reason: "The list does not end" } };
}
