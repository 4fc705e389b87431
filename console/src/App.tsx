// The page: what the server offers, the item that is open, and the call that is under way.

import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { Access, AccessDialog, Scopes, SignIn } from "./access";
import type { Answer } from "./client";
import { Client, ENDPOINT, list, type Preferences } from "./client";
import { Flow, type Call } from "./flow";
import { Boundary, SchemaForm } from "./forms";
import { paramHeaders, type Challenge } from "./headers";
import { JsonDetails } from "./json";
import type { Return } from "./oauth";
import { REDIRECT_URI } from "./oauth";
import type { JsonObject, Prompt, Resource, ResourceTemplate, Schema, Tool } from "./protocol";
import { isObject, META, text } from "./protocol";
import { DEBUG, ErrorCard, FlowRun } from "./rounds";
import { expand, hasFields, promptSchema, templateSchema } from "./schemas";
import { Settings } from "./settings";

type Kind = "tool" | "prompt" | "resource" | "template";

interface Item {
  kind: Kind;
  id: string;
  title: string;
  description: string;
  schema: Schema;
  definition: Tool | Prompt | Resource | ResourceTemplate;
}

interface Server {
  name: string;
  version: string;
  instructions: string;
  completes: boolean;
}

const SECTIONS: { kind: Kind; title: string; method: string; member: string }[] = [
  { kind: "tool", title: "Tools", method: "tools/list", member: "tools" },
  { kind: "prompt", title: "Prompts", method: "prompts/list", member: "prompts" },
  { kind: "resource", title: "Resources", method: "resources/list", member: "resources" },
  {
    kind: "template",
    title: "Templates",
    method: "resources/templates/list",
    member: "resourceTemplates",
  },
];

const EMPTY: Schema = { type: "object", properties: {} };

function item(kind: Kind, definition: any): Item {
  const id = text(
    kind === "resource"
      ? definition.uri
      : kind === "template"
        ? definition.uriTemplate
        : definition.name,
  );
  const schema =
    kind === "tool"
      ? isObject(definition.inputSchema)
        ? definition.inputSchema
        : EMPTY
      : kind === "prompt"
        ? promptSchema(definition)
        : kind === "template"
          ? templateSchema(definition)
          : EMPTY;
  const title = text(definition.title ?? definition.annotations?.title ?? definition.name) || id;
  return { kind, id, title, description: text(definition.description), schema, definition };
}

function call(chosen: Item, args: JsonObject): Call {
  const { kind, id, title } = chosen;
  switch (kind) {
    case "tool": {
      const params = { name: id, arguments: args };
      return {
        title,
        method: "tools/call",
        name: id,
        params,
        paramHeaders: paramHeaders(chosen.schema, args),
      };
    }
    case "prompt":
      return { title, method: "prompts/get", name: id, params: { name: id, arguments: args } };
    case "resource":
      return { title, method: "resources/read", name: id, params: { uri: id } };
    case "template": {
      const uri = expand(id, args);
      return { title: uri, method: "resources/read", name: uri, params: { uri } };
    }
  }
}

const VERBS: Record<Kind, string> = {
  tool: "Call",
  prompt: "Get",
  resource: "Read",
  template: "Read",
};

export function App({ back }: { back: Return | null }) {
  const access = useMemo(() => {
    const made = new Access();
    if (back?.tokens) made.tokens = back.tokens;
    return made;
  }, [back]);
  useSyncExternalStore(access.subscribe, access.snapshot);
  const [preferences, setPreferences] = useState<Preferences>({
    capabilities: { form: true, url: true, sampling: true, tools: true, roots: true },
    logLevel: "debug",
  });
  const client = useMemo(() => new Client(access, preferences), [access]); // eslint-disable-line
  client.preferences = preferences;

  const [server, setServer] = useState<Server | null>(null);
  const [items, setItems] = useState<Item[]>([]);
  const [problem, setProblem] = useState<Answer | null>(null);
  const [loading, setLoading] = useState(true);
  const [place, setPlace] = useState(location.hash);
  const [drafts, setDrafts] = useState<Record<string, Record<string, unknown>>>(() =>
    isObject(back?.draft) ? (back.draft as never) : {},
  );
  const [flows, setFlows] = useState<Record<string, Flow>>({});
  const [dialog, setDialog] = useState<"access" | "settings" | null>(null);
  const [notice, setNotice] = useState(back?.error ?? (back?.tokens ? "You are signed in." : ""));

  const load = useCallback(async () => {
    setLoading(true);
    const { answer } = await client.send({ method: "server/discover", params: {} });
    if (answer.kind !== "result") {
      if (answer.kind === "refused") access.change({ challenge: answer.challenge });
      setProblem(answer);
      setLoading(false);
      return;
    }
    const { capabilities, instructions, _meta } = answer.result;
    const able = isObject(capabilities) ? capabilities : {};
    const info = isObject(_meta) ? _meta[`${META}serverInfo`] : undefined;
    const named = isObject(info) ? info : {};
    setServer({
      name: text(named.title ?? named.name) || "The server",
      version: text(named.version),
      instructions: text(instructions),
      completes: isObject(able.completions),
    });
    const wanted = SECTIONS.filter(({ kind }) =>
      kind === "template" ? able.resources : able[`${kind}s`],
    );
    const lists = await Promise.all(
      wanted.map(({ method, member }) => list<any>(client, method, member)),
    );
    setItems(
      lists.flatMap(({ items: found }, i) => found.map((one) => item(wanted[i]!.kind, one))),
    );
    setProblem(lists.map(({ answer: one }) => one).find((one) => one.kind !== "result") ?? null);
    setLoading(false);
  }, [client, access]);

  useEffect(() => void load(), [load]);
  useEffect(() => {
    const follow = () => setPlace(location.hash);
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  useEffect(() => {
    document.title = server ? `${server.name} · MCP console` : "MCP console";
  }, [server]);

  const chosen = items.find((one) => hashOf(one) === place) ?? null;
  const flow = chosen ? flows[place] : undefined;

  const start = (one: Item, args: Record<string, unknown>) => {
    const key = hashOf(one);
    flows[key]?.stop();
    setNotice("");
    setDrafts((all) => ({ ...all, [key]: args }));
    setFlows((all) => ({ ...all, [key]: new Flow(client, call(one, args as JsonObject)) }));
  };
  const read = (uri: string) => {
    const known = items.find((one) => one.kind === "resource" && one.id === uri);
    const one = known ?? item("resource", { uri, name: uri });
    if (!known) setItems((all) => [...all, one]);
    location.hash = hashOf(one);
    start(one, {});
  };
  const openState = async (token: string): Promise<JsonObject> => {
    const response = await fetch(`${REDIRECT_URI.replace(/\/$/, "")}/state`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...access.headers() },
      body: JSON.stringify({ requestState: token }),
    });
    const said: unknown = await response.json();
    if (response.ok && isObject(said)) return said;
    throw new Error(isObject(said) ? text(said.error ?? said.detail) : "It cannot be opened");
  };
  const probe = async (): Promise<Challenge | null> => {
    const { answer } = await client.send({ method: "server/discover", params: {} });
    return answer.kind === "refused" ? answer.challenge : null;
  };
  const refused = (answer: Answer & { kind: "refused" }) => (
    <Refused
      answer={answer}
      access={access}
      probe={probe}
      draft={() => drafts}
      onByHand={() => setDialog("access")}
    />
  );

  return (
    <div className={chosen ? "app has-item" : "app"}>
      <a
        className="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <header className="top">
        <div className="brand">
          <span className="name">{server?.name ?? "MCP console"}</span>
          {server?.version && <span className="muted">{server.version}</span>}
          {DEBUG && <span className="tag warn">debug</span>}
        </div>
        <div className="actions">
          <button type="button" className="quiet" onClick={() => void load()} disabled={loading}>
            Reload<span className="sr-only"> what the server offers</span>
          </button>
          <button type="button" className="quiet" onClick={() => setDialog("settings")}>
            Client
          </button>
          <button
            type="button"
            className={access.inUse ? "quiet on" : "quiet"}
            onClick={() => setDialog("access")}
          >
            {access.inUse ?? "Access"}
          </button>
        </div>
      </header>
      <Catalogue items={items} place={place} loading={loading} />
      <main id="main" tabIndex={-1}>
        {notice && (
          <p className="notice" role="status">
            {notice}{" "}
            <button type="button" className="quiet small" onClick={() => setNotice("")}>
              Dismiss
            </button>
          </p>
        )}
        {problem && <Problem problem={problem} refused={refused} onRetry={() => void load()} />}
        {chosen ? (
          <>
            <a className="back" href="#">
              All of {server?.name}
            </a>
            <ItemView
              key={place}
              item={chosen}
              draft={drafts[place] ?? {}}
              client={server?.completes ? client : null}
              onDraft={(args) => setDrafts((all) => ({ ...all, [place]: args }))}
              onStart={(args) => start(chosen, args)}
            />
            {flow && (
              <Boundary key={`shown-${flowId(flow)}`} fallback={<Unshowable />}>
                <FlowRun
                  key={flowId(flow)}
                  flow={flow}
                  server={server?.name ?? "The server"}
                  onRead={read}
                  onRefused={refused}
                  openState={openState}
                />
              </Boundary>
            )}
          </>
        ) : (
          !problem && server && <Welcome server={server} items={items} />
        )}
      </main>
      <AccessDialog
        access={access}
        open={dialog === "access"}
        onClose={() => setDialog(null)}
        onChanged={() => void load()}
        probe={probe}
        draft={() => drafts}
      />
      <Settings
        open={dialog === "settings"}
        preferences={preferences}
        onChange={setPreferences}
        onClose={() => setDialog(null)}
      />
    </div>
  );
}

function Unshowable() {
  return (
    <p className="notice warning" role="alert">
      The server sent something that this page cannot show.
    </p>
  );
}

function hashOf({ kind, id }: Item): string {
  return `#${kind}/${encodeURIComponent(id)}`;
}

const ids = new WeakMap<Flow, number>();
let lastId = 0;

function flowId(flow: Flow): number {
  if (!ids.has(flow)) ids.set(flow, ++lastId);
  return ids.get(flow)!;
}

// ------------------------------------------------------------------------------- the catalogue

function Catalogue({ items, place, loading }: { items: Item[]; place: string; loading: boolean }) {
  const [filter, setFilter] = useState("");
  const wanted = filter.trim().toLowerCase();
  const shown = items.filter((one) =>
    [one.id, one.title, one.description].some((part) => part.toLowerCase().includes(wanted)),
  );
  return (
    <nav className="catalogue" aria-label="What the server offers">
      <label className="sr-only" htmlFor="filter">
        Filter
      </label>
      <input
        disabled={items.length === 0}
        id="filter"
        type="search"
        placeholder="Filter"
        value={filter}
        onChange={(event) => setFilter(event.target.value)}
      />
      <p className="sr-only" role="status">
        {wanted ? `${shown.length} of ${items.length} match` : ""}
      </p>
      {SECTIONS.map(({ kind, title }) => {
        const section = shown.filter((one) => one.kind === kind);
        if (section.length === 0) return null;
        return (
          <section key={kind} aria-labelledby={`section-${kind}`}>
            <h2 id={`section-${kind}`}>{title}</h2>
            <ul>
              {section.map((one) => (
                <li key={one.id}>
                  <a href={hashOf(one)} aria-current={hashOf(one) === place ? "page" : undefined}>
                    <span className="entry-title">{one.title}</span>
                    {one.title !== one.id && <span className="entry-id">{one.id}</span>}
                  </a>
                </li>
              ))}
            </ul>
          </section>
        );
      })}
      {!loading && items.length > 0 && shown.length === 0 && (
        <p className="muted">Nothing matches.</p>
      )}
      {loading && items.length === 0 && <p className="muted">Loading…</p>}
    </nav>
  );
}

function Welcome({ server, items }: { server: Server; items: Item[] }) {
  return (
    <div className="welcome">
      <h1>{server.name}</h1>
      {server.instructions && <p className="text-block">{server.instructions}</p>}
      <p className="muted">
        {items.length === 0
          ? "It offers nothing yet, or nothing that you may see."
          : "Choose what to call. This page plays the client: it shows what the server asks, sends what you answer, and keeps every round for you to read."}
      </p>
      <dl className="facts">
        <dt>Endpoint</dt>
        <dd>
          <code className="break">{ENDPOINT}</code>
        </dd>
      </dl>
    </div>
  );
}

interface ProblemProps {
  problem: Answer;
  refused: (answer: Answer & { kind: "refused" }) => React.ReactNode;
  onRetry: () => void;
}

function Problem({ problem, refused, onRetry }: ProblemProps) {
  return (
    <div className="card">
      {problem.kind === "refused" && refused(problem)}
      {problem.kind === "error" && <ErrorCard error={problem.error} />}
      {problem.kind === "failed" && (
        <p className="notice warning" role="alert">
          {problem.reason}
        </p>
      )}
      {problem.kind !== "refused" && (
        <div className="buttons">
          <button type="button" onClick={onRetry}>
            Try again
          </button>
        </div>
      )}
    </div>
  );
}

interface RefusedProps {
  answer: Answer & { kind: "refused" };
  access: Access;
  probe: () => Promise<Challenge | null>;
  draft: () => unknown;
  onByHand: () => void;
}

function Refused({ answer, access, probe, draft, onByHand }: RefusedProps) {
  const { challenge } = answer;
  const more = challenge?.error === "insufficient_scope";
  return (
    <div className="refused">
      <h2>
        {more ? "This needs more than you were granted" : "The server wants to know who you are"}
      </h2>
      {challenge?.description && <p className="muted">{challenge.description}</p>}
      {more && challenge?.scope && (
        <p>
          It needs <Scopes scope={challenge.scope} />
        </p>
      )}
      {challenge && (
        <SignIn
          access={access}
          probe={probe}
          draft={draft}
          challenge={challenge}
          label={more ? "Sign in for that" : "Sign in"}
        />
      )}
      <p>
        <button type="button" onClick={onByHand}>
          Enter a token or a header
        </button>
      </p>
    </div>
  );
}

// ----------------------------------------------------------------------------------- the item

interface ItemProps {
  item: Item;
  draft: Record<string, unknown>;
  /** Who to ask for suggestions, if the server has any. */
  client: Client | null;
  onDraft: (args: Record<string, unknown>) => void;
  onStart: (args: Record<string, unknown>) => void;
}

function ItemView({ item: one, draft, client, onDraft, onStart }: ItemProps) {
  const { kind, id, title, description, definition } = one;
  const schema = useSuggestions(one, draft, client);
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  const call = (
    <button type="submit" className="primary">
      {VERBS[kind]}
    </button>
  );
  return (
    <section className="item" aria-labelledby="item-title">
      <div className="item-head">
        <h1 id="item-title" tabIndex={-1} ref={heading}>
          {title}
        </h1>
        <code className="break">{id}</code>
        <Hints definition={definition as Tool} />
      </div>
      {description && <p className="text-block description">{description}</p>}
      <div className="card">
        {hasFields(schema) ? (
          <SchemaForm
            prefix="call"
            schema={schema}
            value={draft}
            onChange={onDraft}
            onSubmit={onStart}
          >
            {call}
          </SchemaForm>
        ) : (
          <form
            onSubmit={(event) => {
              event.preventDefault();
              onStart({});
            }}
          >
            <div className="buttons">
              {call}
              <span className="muted">
                {kind === "tool" || kind === "prompt" ? "It takes no arguments." : ""}
              </span>
            </div>
          </form>
        )}
      </div>
      <JsonDetails title="Definition" value={definition} />
    </section>
  );
}

const REFERENCES: Partial<Record<Kind, (id: string) => JsonObject>> = {
  prompt: (name) => ({ type: "ref/prompt", name }),
  template: (uri) => ({ type: "ref/resource", uri }),
};
const MAX_ARGUMENTS = 8;

/** The schema of an item, with what the server suggests for its arguments (completion/complete). */
function useSuggestions(one: Item, draft: Record<string, unknown>, client: Client | null): Schema {
  const [found, setFound] = useState<Record<string, string[]>>({});
  const asked = useRef<Record<string, unknown>>({});
  useEffect(() => {
    const ref = REFERENCES[one.kind]?.(one.id);
    if (!ref || !client) return;
    const changed = Object.keys(one.schema.properties)
      .slice(0, MAX_ARGUMENTS)
      .filter((name) => asked.current[name] !== text(draft[name]));
    const timer = setTimeout(() => {
      for (const name of changed) {
        const value = text(draft[name]);
        asked.current[name] = value;
        const others = Object.entries(draft).filter(([other, given]) => other !== name && given);
        const params = {
          ref,
          argument: { name, value },
          context: { arguments: Object.fromEntries(others) },
        };
        void client.send({ method: "completion/complete", params }).then(({ answer }) => {
          const completion = answer.kind === "result" ? answer.result.completion : null;
          const values = isObject(completion) ? completion.values : null;
          if (!Array.isArray(values)) return;
          setFound((all) => ({ ...all, [name]: values.filter((v) => typeof v === "string") }));
        });
      }
    }, 200);
    return () => clearTimeout(timer);
  }, [one, draft, client]);
  return useMemo(() => {
    const properties: Record<string, Schema> = { ...one.schema.properties };
    for (const [name, values] of Object.entries(found)) {
      if (values.length) properties[name] = { ...properties[name], examples: values };
    }
    return Object.keys(found).length ? { ...one.schema, properties } : one.schema;
  }, [one, found]);
}

function Hints({ definition }: { definition: Tool }) {
  const { annotations } = definition;
  if (!isObject(annotations)) return null;
  const { readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = annotations;
  const hints = [
    readOnlyHint === true && "only reads",
    readOnlyHint !== true && destructiveHint === true && "may destroy",
    readOnlyHint !== true && idempotentHint === true && "repeatable",
    openWorldHint === true && "reaches outside",
  ].filter(Boolean);
  return (
    <>
      {hints.map((hint) => (
        <span key={String(hint)} className={hint === "may destroy" ? "tag warn" : "tag"}>
          {hint}
        </span>
      ))}
    </>
  );
}
