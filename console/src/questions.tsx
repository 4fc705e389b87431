// What a round asks, for a person to answer: forms, links, messages to a model, a list of folders.
// Every question can be refused in the two ways that the protocol knows, where it knows any.

import { useId, useMemo, useRef, useState } from "react";
import { Blocks, Messages, webAddress } from "./content";
import type { Ask } from "./flow";
import { reasonsByField } from "./flow";
import { SchemaForm } from "./forms";
import { JsonDetails } from "./json";
import type { Json, JsonObject, Schema } from "./protocol";
import { isObject, text } from "./protocol";

type Answer = JsonObject;

interface Props {
  asks: Ask[];
  round: number;
  onReply: (answers: JsonObject) => void;
}

/** One question is sent with its answer; several are sent together once all are answered. */
export function Questions({ asks, round, onReply }: Props) {
  const [answers, setAnswers] = useState<JsonObject>({});
  const [changing, setChanging] = useState<string | null>(null);
  const send = useRef<HTMLButtonElement>(null);
  const single = asks.length === 1;
  const open = asks.filter((ask) => !(ask.key in answers) || ask.key === changing);

  const answered = (key: string, answer: Answer) => {
    if (single) {
      onReply({ [key]: answer });
      return;
    }
    const all = { ...answers, [key]: answer };
    setAnswers(all);
    setChanging(null);
    const next = asks.find((ask) => !(ask.key in all));
    requestAnimationFrame(() =>
      next ? document.getElementById(`ask-${next.key}`)?.focus() : send.current?.focus(),
    );
  };

  return (
    <div className="questions">
      {asks.map((ask) => {
        const answer = answers[ask.key];
        const done = answer !== undefined && !open.includes(ask);
        return (
          <article key={ask.key} className="card question" aria-labelledby={`ask-${ask.key}`}>
            <header>
              <h3 id={`ask-${ask.key}`} tabIndex={-1}>
                <Message ask={ask} />
              </h3>
              <span className="tag" title="The key of this question">
                {ask.key}
              </span>
            </header>
            {done ? (
              <p className="answered">
                <span>{summary(answer)}</span>
                <button type="button" className="quiet small" onClick={() => setChanging(ask.key)}>
                  Change<span className="sr-only"> the answer to {ask.key}</span>
                </button>
              </p>
            ) : (
              <Question
                ask={ask}
                draft={answer}
                label={single ? "Send" : "Answer"}
                prefix={`round-${round}-${ask.key}`}
                onAnswer={(given) => answered(ask.key, given)}
              />
            )}
          </article>
        );
      })}
      {!single && (
        <div className="buttons">
          <button
            type="button"
            className="primary"
            ref={send}
            disabled={open.length > 0}
            onClick={() => onReply(answers)}
          >
            Send {asks.length} answers
          </button>
          {open.length > 0 && <span className="muted">{open.length} still open</span>}
        </div>
      )}
    </div>
  );
}

function Message({ ask }: { ask: Ask }) {
  switch (ask.request.method) {
    case "sampling/createMessage":
      return <>A reply from your model</>;
    case "roots/list":
      return <>The folders that the server may look at</>;
    default:
      return <span className="text-block">{ask.message || "Please answer"}</span>;
  }
}

function summary(answer: Json | undefined): string {
  if (!isObject(answer)) return "";
  if (answer.action === "decline") return "Declined";
  if (answer.action === "cancel") return "Cancelled";
  if (isObject(answer.content) && answer.action) return `Answer: ${brief(answer.content)}`;
  if (Array.isArray(answer.roots)) return `${answer.roots.length} folders`;
  return answer.role ? "Replied" : "Agreed";
}

function brief(content: JsonObject): string {
  const words = (value: Json) =>
    Array.isArray(value) ? value.map(text).join(" and ") : text(value);
  const parts = Object.entries(content).map(([name, value]) => `${name}: ${words(value)}`);
  const joined = parts.length === 1 ? words(Object.values(content)[0]) : parts.join(", ");
  return joined.length > 120 ? `${joined.slice(0, 119)}…` : joined;
}

interface One {
  ask: Ask;
  draft: Json | undefined;
  label: string;
  prefix: string;
  onAnswer: (answer: Answer) => void;
}

function Question(props: One) {
  const { method, params } = props.ask.request;
  if (method === "elicitation/create") {
    return params?.mode === "url" ? <Link {...props} /> : <Form {...props} />;
  }
  if (method === "sampling/createMessage") return <Sampling {...props} />;
  if (method === "roots/list") return <Roots {...props} />;
  return <JsonDetails title={`This page cannot answer ${method}`} value={props.ask.request} />;
}

function Refusals({ onAnswer }: { onAnswer: One["onAnswer"] }) {
  return (
    <>
      <button type="button" onClick={() => onAnswer({ action: "decline" })}>
        Decline
      </button>
      <button type="button" onClick={() => onAnswer({ action: "cancel" })}>
        Cancel
      </button>
    </>
  );
}

// --------------------------------------------------------------------------------------- forms

function Form({ ask, draft, label, prefix, onAnswer }: One) {
  const schema = useMemo(() => withTitle(ask.request.params?.requestedSchema), [ask]);
  const fields = Object.keys(isObject(schema.properties) ? schema.properties : {});
  const refused = ask.reason === null ? null : reasonsByField(ask.reason, fields);
  const [value, setValue] = useState<Record<string, unknown>>(
    contentOf(draft) ?? contentOf(ask.before) ?? {},
  );
  return (
    <>
      {refused && (
        <p className="notice warning" role="alert">
          The server did not take that answer
          {refused.rest.length ? `: ${refused.rest.join("; ")}` : "."}
        </p>
      )}
      <SchemaForm
        prefix={prefix}
        schema={schema}
        value={value}
        onChange={setValue}
        errors={refused?.fields}
        onSubmit={(content) => onAnswer({ action: "accept", content: content as JsonObject })}
      >
        <button type="submit" className="primary">
          {label}
        </button>
        <Refusals onAnswer={onAnswer} />
      </SchemaForm>
    </>
  );
}

function contentOf(answer: Json | undefined): Record<string, unknown> | null {
  return isObject(answer) && isObject(answer.content) ? answer.content : null;
}

/** The one field of a question that is no form is named for the wire, not for people. */
function withTitle(schema: unknown): Schema {
  if (!isObject(schema)) return { type: "object", properties: {} };
  const { properties } = schema;
  if (!isObject(properties) || !isObject(properties.value) || properties.value.title) return schema;
  if (Object.keys(properties).length !== 1) return schema;
  return { ...schema, properties: { value: { ...properties.value, title: "Your answer" } } };
}

// --------------------------------------------------------------------------------------- links

function Link({ ask, onAnswer }: One) {
  const url = text(ask.request.params?.url);
  const address = webAddress(url);
  const [opened, setOpened] = useState(false);
  return (
    <>
      {address ? (
        <dl className="facts">
          <dt>Leads to</dt>
          <dd>
            <strong>{address.host}</strong>
            {address.protocol === "http:" && <span className="tag warn">not encrypted</span>}
          </dd>
          <dt>Address</dt>
          <dd>
            <code className="break">{url}</code>
          </dd>
        </dl>
      ) : (
        <p className="notice warning" role="alert">
          This is no web address, so this page does not open it:{" "}
          <code className="break">{url}</code>
        </p>
      )}
      <p className="hint">
        Open it only if you expect it. What you enter there does not pass through this page.
      </p>
      <div className="buttons">
        {address && (
          <a
            className={opened ? "button" : "button primary"}
            href={address.href}
            target="_blank"
            rel="noopener noreferrer"
            onClick={() => setOpened(true)}
          >
            Open {address.host} in a new tab
          </a>
        )}
        {address && (
          <button
            type="button"
            className={opened ? "primary" : ""}
            onClick={() => onAnswer({ action: "accept" })}
          >
            Continue
          </button>
        )}
        <Refusals onAnswer={onAnswer} />
      </div>
    </>
  );
}

// ------------------------------------------------------------------------------------ sampling

const STOPPED = ["endTurn", "maxTokens", "stopSequence"];

function Sampling({ ask, label, prefix, onAnswer }: One) {
  const params = isObject(ask.request.params) ? ask.request.params : {};
  const [reply, setReply] = useState("");
  const [model, setModel] = useState("a person");
  const [stopReason, setStopReason] = useState("endTurn");
  const { messages, systemPrompt, maxTokens, temperature, ...rest } = params;
  return (
    <form
      className="schema-form"
      onSubmit={(event) => {
        event.preventDefault();
        onAnswer({ role: "assistant", content: { type: "text", text: reply }, model, stopReason });
      }}
    >
      {systemPrompt !== undefined && (
        <div className="system">
          <span className="role">system</span>
          <Blocks blocks={{ type: "text", text: text(systemPrompt) }} />
        </div>
      )}
      <Messages messages={Array.isArray(messages) ? messages : []} />
      <p className="hint">
        At most {text(maxTokens)} tokens
        {temperature !== undefined && `, temperature ${text(temperature)}`}. You are the model now.
      </p>
      {Object.keys(rest).length > 0 && <JsonDetails title="What else it asks for" value={rest} />}
      <div className="field">
        <label htmlFor={`${prefix}-reply`}>Reply</label>
        <textarea
          id={`${prefix}-reply`}
          rows={4}
          value={reply}
          onChange={(e) => setReply(e.target.value)}
        />
      </div>
      <div className="row">
        <div className="field grow">
          <label htmlFor={`${prefix}-model`}>Model</label>
          <input id={`${prefix}-model`} value={model} onChange={(e) => setModel(e.target.value)} />
        </div>
        <div className="field grow">
          <label htmlFor={`${prefix}-stop`}>Stopped because</label>
          <select
            id={`${prefix}-stop`}
            value={stopReason}
            onChange={(e) => setStopReason(e.target.value)}
          >
            {STOPPED.map((why) => (
              <option key={why}>{why}</option>
            ))}
          </select>
        </div>
      </div>
      <div className="buttons">
        <button type="submit" className="primary">
          {label === "Send" ? "Send the reply" : label}
        </button>
      </div>
      <p className="hint">The protocol knows no refusal here: stop the call to send nothing.</p>
    </form>
  );
}

// --------------------------------------------------------------------------------------- roots

interface Root {
  uri: string;
  name: string;
}

let lastRoots: Root[] = [{ uri: "file:///home/me/project", name: "" }];

function Roots({ label, onAnswer }: One) {
  const [roots, setRoots] = useState<Root[]>(lastRoots);
  const id = useId();
  const change = (at: number, part: Partial<Root>) =>
    setRoots(roots.map((root, i) => (i === at ? { ...root, ...part } : root)));
  const wrong = (root: Root) => !root.uri.startsWith("file://");
  return (
    <form
      className="schema-form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        lastRoots = roots;
        onAnswer({
          roots: roots.map(({ uri, name }) => (name ? { uri, name } : { uri })),
        });
      }}
    >
      {roots.map((root, i) => (
        <div className="row" key={i}>
          <div className={wrong(root) ? "field grow wrong" : "field grow"}>
            <label htmlFor={`${id}-uri-${i}`}>Folder {i + 1}</label>
            <input
              id={`${id}-uri-${i}`}
              value={root.uri}
              aria-describedby={wrong(root) ? `${id}-wrong-${i}` : undefined}
              onChange={(event) => change(i, { uri: event.target.value })}
            />
            {wrong(root) && (
              <ul className="field-errors" id={`${id}-wrong-${i}`}>
                <li>must begin with file://</li>
              </ul>
            )}
          </div>
          <div className="field grow">
            <label htmlFor={`${id}-name-${i}`}>Name</label>
            <input
              id={`${id}-name-${i}`}
              value={root.name}
              onChange={(event) => change(i, { name: event.target.value })}
            />
          </div>
          <button
            type="button"
            className="quiet small"
            onClick={() => setRoots(roots.filter((_, at) => at !== i))}
          >
            Remove<span className="sr-only"> folder {i + 1}</span>
          </button>
        </div>
      ))}
      <div className="buttons">
        <button type="submit" className="primary">
          {label === "Send" ? "Send the list" : label}
        </button>
        <button type="button" onClick={() => setRoots([...roots, { uri: "file:///", name: "" }])}>
          Add a folder
        </button>
      </div>
    </form>
  );
}
