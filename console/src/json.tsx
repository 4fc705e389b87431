// JSON for people to read: coloured, never interpreted.

import { useId, useState, type ReactNode } from "react";

const TOKEN =
  /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;
const MAX_COLOURED = 50_000;

export function Json({ value }: { value: unknown }) {
  const source = JSON.stringify(value, null, 2) ?? "";
  return (
    <pre className="json" tabIndex={0}>
      {source.length > MAX_COLOURED ? source : coloured(source)}
    </pre>
  );
}

function coloured(source: string) {
  const parts = [];
  let at = 0;
  for (const match of source.matchAll(TOKEN)) {
    const [all, string, colon] = match;
    if (match.index > at) parts.push(source.slice(at, match.index));
    const kind = string ? (colon ? "key" : "string") : match[3] ? "word" : "number";
    const token = string && colon ? string : all;
    parts.push(
      <span key={match.index} className={`json-${kind}`}>
        {token}
      </span>,
    );
    at = match.index + token.length;
  }
  parts.push(source.slice(at));
  return parts;
}

/** A part that is there for those who want to see it. */
export function JsonDetails({ title, value }: { title: string; value: unknown }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="json-details" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {open && <JsonBox value={value} />}
    </details>
  );
}

/** Several of those in one line; one at a time is open. */
export function Panels({ panels }: { panels: { title: string; content: () => ReactNode }[] }) {
  const [open, setOpen] = useState<string | null>(null);
  const id = useId();
  const shown = panels.find(({ title }) => title === open);
  return (
    <>
      <div className="panels">
        {panels.map(({ title }) => (
          <button
            key={title}
            type="button"
            className="quiet small"
            aria-expanded={title === open}
            aria-controls={id}
            onClick={() => setOpen(title === open ? null : title)}
          >
            {title}
          </button>
        ))}
      </div>
      <div id={id}>{shown?.content()}</div>
    </>
  );
}

export function JsonBox({ value }: { value: unknown }) {
  return (
    <div className="json-box">
      <Copy value={value} />
      <Json value={value} />
    </div>
  );
}

function Copy({ value }: { value: unknown }) {
  const [copied, setCopied] = useState(false);
  if (!navigator.clipboard) return null;
  const copy = async () => {
    await navigator.clipboard.writeText(JSON.stringify(value, null, 2));
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <button type="button" className="quiet small copy" onClick={() => void copy()}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}
