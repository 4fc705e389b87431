// A flow: all rounds of one call, from the first request to its result. The requests are made here;
// what is shown of them and what people answer is not.

import type { Answer, Client, Exchange, Wanted } from "./client";
import type { InputRequest, Json, JsonObject, Notification, Request } from "./protocol";
import { isObject, text } from "./protocol";

export interface Call {
  title: string;
  method: string;
  params: JsonObject;
  name: string;
  paramHeaders?: Record<string, string>;
}

export interface Progress {
  done: number;
  total: number | null;
  message: string;
}

export interface LogLine {
  level: string;
  logger: string;
  data: Json;
}

export interface Ask {
  key: string;
  request: InputRequest;
  /** The message without the reason that the server appended to it. */
  message: string;
  /** Why the server did not take the last answer, and that answer. */
  reason: string | null;
  before: Json | undefined;
}

export interface Round {
  number: number;
  request: Request;
  requestHeaders: Record<string, string>;
  started: number;
  took: number | null;
  exchange: Exchange | null;
  progress: Progress | null;
  log: LogLine[];
  notifications: Notification[];
  asks: Ask[];
  state: string | null;
}

export type Phase = "running" | "asking" | "waiting" | "done" | "failed";

export interface FlowView {
  call: Call;
  phase: Phase;
  rounds: Round[];
  answer: Answer | null;
}

const MAX_LINES = 1000;

export class Flow {
  private view: FlowView;
  private listeners = new Set<() => void>();
  private abort = new AbortController();
  private answers: JsonObject = {};
  private messages = new Map<string, string>();

  constructor(
    private readonly client: Client,
    call: Call,
  ) {
    this.view = { call, phase: "running", rounds: [], answer: null };
    void this.round({});
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  snapshot = (): FlowView => this.view;

  /** Send the answers to everything that was asked. */
  reply(answers: JsonObject): void {
    const state = this.last?.state ?? null;
    this.answers = { ...this.answers, ...answers };
    void this.round({ inputResponses: answers, ...stateOf(state) });
  }

  /** Come back to a server that had nothing to ask yet, or repeat a round that failed. */
  again(): void {
    const params = this.last?.request.params ?? {};
    const round: JsonObject = {};
    if (this.view.phase === "waiting") Object.assign(round, stateOf(this.last?.state ?? null));
    else {
      for (const member of ["inputResponses", "requestState"]) {
        if (params[member] !== undefined) round[member] = params[member];
      }
    }
    void this.round(round);
  }

  stop(): void {
    this.abort.abort();
    if (this.view.phase === "asking" || this.view.phase === "waiting") {
      this.set({
        phase: "failed",
        answer: { kind: "failed", reason: "You stopped this call" },
      });
    }
  }

  private get last(): Round | undefined {
    return this.view.rounds.at(-1);
  }

  private async round(members: JsonObject): Promise<void> {
    const { call } = this.view;
    this.abort = new AbortController();
    const wanted: Wanted = {
      method: call.method,
      name: call.name,
      params: { ...call.params, ...members },
      paramHeaders: call.paramHeaders,
      signal: this.abort.signal,
      onSent: (request, headers) => this.begin(request, headers),
      onNotification: (notification) => this.notified(notification),
    };
    const exchange = await this.client.send(wanted);
    this.finish(exchange);
  }

  private begin(request: Request, requestHeaders: Record<string, string>): void {
    const round: Round = {
      number: this.view.rounds.length + 1,
      request,
      requestHeaders,
      started: performance.now(),
      took: null,
      exchange: null,
      progress: null,
      log: [],
      notifications: [],
      asks: [],
      state: null,
    };
    // A request that is repeated with other credentials is the same round.
    const rounds = this.view.rounds.filter((earlier) => earlier.exchange !== null);
    round.number = rounds.length + 1;
    this.set({ phase: "running", rounds: [...rounds, round], answer: null });
  }

  private notified(notification: Notification): void {
    const { params } = notification;
    const { notifications, log } = this.last!;
    const changes: Partial<Round> = {
      notifications: [...notifications, notification].slice(-MAX_LINES),
    };
    if (notification.method === "notifications/progress" && typeof params?.progress === "number") {
      const total = typeof params.total === "number" ? params.total : null;
      changes.progress = { done: params.progress, total, message: text(params.message) };
    } else if (notification.method === "notifications/message" && isObject(params)) {
      const line = { level: text(params.level), logger: text(params.logger), data: params.data };
      changes.log = [...log, line].slice(-MAX_LINES);
    }
    this.change(changes);
  }

  private finish(exchange: Exchange): void {
    const took = performance.now() - this.last!.started;
    const { answer } = exchange;
    if (answer.kind !== "result" || answer.result.resultType !== "input_required") {
      this.change({ exchange, took });
      const failed = answer.kind !== "result";
      this.set({ phase: failed ? "failed" : "done", answer });
      return;
    }
    const { inputRequests, requestState } = answer.result;
    const asks = isObject(inputRequests)
      ? Object.entries(inputRequests).flatMap(([key, request]) => this.asked(key, request))
      : [];
    this.change({ exchange, took, asks, state: text(requestState) || null });
    this.set({ phase: asks.length ? "asking" : "waiting" });
  }

  private asked(key: string, request: unknown): Ask[] {
    if (!isObject(request) || typeof request.method !== "string") return [];
    const message = text(request.params?.message);
    const base = this.messages.get(key);
    // What the server does not take it asks again, with the reason in a line of its own.
    if (base !== undefined && message.startsWith(`${base}\n(`) && message.endsWith(")")) {
      const reason = message.slice(base.length + 2, -1);
      const before = this.answers[key];
      return [{ key, request: request as InputRequest, message: base, reason, before }];
    }
    this.messages.set(key, message);
    const ask = { key, request: request as InputRequest, message, reason: null };
    return [{ ...ask, before: undefined }];
  }

  private change(changes: Partial<Round>): void {
    const rounds = [...this.view.rounds];
    const last = rounds.pop();
    if (last) this.set({ rounds: [...rounds, { ...last, ...changes }] });
  }

  private set(changes: Partial<FlowView>): void {
    this.view = { ...this.view, ...changes };
    for (const listener of this.listeners) listener();
  }
}

function stateOf(state: string | null): JsonObject {
  return state === null ? {} : { requestState: state };
}

/** What the server appended, told apart by field: `row: must be at most 40; letter: …`. */
export function reasonsByField(
  reason: string,
  fields: string[],
): { fields: Record<string, string[]>; rest: string[] } {
  const found: Record<string, string[]> = Object.create(null); // names are the server's
  const rest: string[] = [];
  for (const part of reason.split("; ")) {
    const field = fields.find(
      (name) => part.startsWith(`${name}: `) || part.startsWith(`${name}.`),
    );
    if (field !== undefined) {
      (found[field] ??= []).push(part.slice(part.indexOf(": ") + 2));
    } else if (fields.length === 1 && fields[0] === "value") {
      (found.value ??= []).push(part);
    } else rest.push(part);
  }
  return { fields: found, rest };
}
