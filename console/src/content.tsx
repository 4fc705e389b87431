// What a server sends for people to see. All of it may be hostile: text stays text, pictures and
// sounds are data of known types, and links lead to web addresses only and open elsewhere.

import { JsonDetails, Json } from "./json";
import type { JsonObject } from "./protocol";
import { isObject, text } from "./protocol";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);
const SOUNDS = new Set([
  "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/opus", "audio/flac", "audio/webm",
  "audio/wav", "audio/x-wav", "audio/wave",
]); // prettier-ignore
const BASE64 = /^[A-Za-z0-9+/_=\s-]*$/;

/** A web address, or `null` for everything else that a link could do. */
export function webAddress(url: unknown): URL | null {
  if (typeof url !== "string" || !URL.canParse(url)) return null;
  const parsed = new URL(url);
  return parsed.protocol === "https:" || parsed.protocol === "http:" ? parsed : null;
}

/** A data URL of a type that may be shown. */
function data(type: unknown, content: unknown, allowed: Set<string>): string | null {
  const plain = text(type).split(";")[0]!.trim().toLowerCase();
  if (!allowed.has(plain) || typeof content !== "string" || !BASE64.test(content)) return null;
  return `data:${plain};base64,${content.replaceAll("-", "+").replaceAll("_", "/").replace(/\s/g, "")}`;
}

export function SafeLink({ url, children }: { url: string; children?: React.ReactNode }) {
  const address = webAddress(url);
  if (!address) return <code className="break">{url}</code>;
  return (
    <a href={address.href} target="_blank" rel="noopener noreferrer" className="break">
      {children ?? url}
    </a>
  );
}

export function Blocks({ blocks, onRead }: { blocks: unknown; onRead?: (uri: string) => void }) {
  const all = Array.isArray(blocks) ? blocks : [blocks];
  return (
    <div className="blocks">
      {all.map((block, i) => (
        <Block key={i} block={block} onRead={onRead} />
      ))}
    </div>
  );
}

export function Block({ block, onRead }: { block: unknown; onRead?: (uri: string) => void }) {
  if (!isObject(block)) return <Json value={block} />;
  switch (block.type) {
    case "text":
      return <Text text={text(block.text)} />;
    case "image":
      return <Picture type={block.mimeType} content={block.data} />;
    case "audio":
      return <Sound type={block.mimeType} content={block.data} />;
    case "resource_link":
      return (
        <div className="attachment">
          <strong>{text(block.title ?? block.name) || "Resource"}</strong>
          <SafeLink url={text(block.uri)} />
          {block.description !== undefined && (
            <span className="muted">{text(block.description)}</span>
          )}
          {onRead && (
            <button type="button" className="small" onClick={() => onRead(text(block.uri))}>
              Read it here
            </button>
          )}
        </div>
      );
    case "resource":
      return <Contents contents={block.resource} />;
    default:
      return <JsonDetails title={`A block of type ${text(block.type) || "?"}`} value={block} />;
  }
}

function Text({ text: shown }: { text: string }) {
  return <p className="text-block">{shown}</p>;
}

function Picture({ type, content }: { type: unknown; content: unknown }) {
  const source = data(type, content, IMAGES);
  if (source === null) return <Unshown what="An image" type={type} content={content} />;
  return <img className="picture" src={source} alt={`From the server (${text(type)})`} />;
}

function Sound({ type, content }: { type: unknown; content: unknown }) {
  const source = data(type, content, SOUNDS);
  if (source === null) return <Unshown what="A sound" type={type} content={content} />;
  return <audio controls src={source} aria-label={`From the server (${text(type)})`} />;
}

function Unshown({ what, type, content }: { what: string; type: unknown; content: unknown }) {
  const size = typeof content === "string" ? `, ${bytes(content)}` : "";
  return (
    <p className="attachment muted">
      {what} of type {text(type) || "unknown"}
      {size}. This page does not show it.
    </p>
  );
}

function bytes(base64: string): string {
  const size = Math.floor((base64.replace(/[=\s]/g, "").length * 3) / 4);
  return size < 1024 ? `${size} bytes` : `${(size / 1024).toFixed(1)} KiB`;
}

/** What a resource holds: text, or bytes. */
export function Contents({ contents }: { contents: unknown }) {
  if (!isObject(contents)) return <Json value={contents} />;
  const { uri, mimeType, text: body, blob } = contents;
  return (
    <figure className="attachment">
      <figcaption>
        <code className="break">{text(uri)}</code>{" "}
        {mimeType !== undefined && <span className="tag">{text(mimeType)}</span>}
      </figcaption>
      {typeof body === "string" ? (
        <pre className="text-block" tabIndex={0}>
          {body}
        </pre>
      ) : data(mimeType, blob, SOUNDS) ? (
        <Sound type={mimeType} content={blob} />
      ) : (
        <Picture type={mimeType} content={blob} />
      )}
    </figure>
  );
}

/** The result of a tool, a prompt or a resource. */
export function Result({ result, onRead }: { result: JsonObject; onRead: (uri: string) => void }) {
  const { content, structuredContent, messages, contents, isError, description } = result;
  const texts = Array.isArray(content) ? content : [];
  // Most servers repeat the structured content as a text block for older clients.
  const repeated = JSON.stringify(structuredContent);
  const shown = texts.filter(
    (block) =>
      !(structuredContent !== undefined && isObject(block) && sameJson(block.text, repeated)),
  );
  return (
    <div className={isError === true ? "result is-error" : "result"}>
      {isError === true && <p className="result-kind">The tool reports an error</p>}
      {typeof description === "string" && <p className="muted">{description}</p>}
      {shown.length > 0 && <Blocks blocks={shown} onRead={onRead} />}
      {structuredContent !== undefined && <Json value={structuredContent} />}
      {Array.isArray(messages) && <Messages messages={messages} />}
      {Array.isArray(contents) && contents.map((item, i) => <Contents key={i} contents={item} />)}
      {content === undefined &&
        structuredContent === undefined &&
        messages === undefined &&
        contents === undefined && <Json value={result} />}
    </div>
  );
}

function sameJson(candidate: unknown, json: string): boolean {
  try {
    return typeof candidate === "string" && JSON.stringify(JSON.parse(candidate)) === json;
  } catch {
    return false;
  }
}

/** A conversation: the messages of a prompt, or those a model is to go on from. */
export function Messages({ messages }: { messages: unknown[] }) {
  return (
    <ol className="messages">
      {messages.filter(isObject).map((message, i) => (
        <li key={i} className={message.role === "assistant" ? "assistant" : "user"}>
          <span className="role">{text(message.role)}</span>
          <Blocks blocks={message.content} />
        </li>
      ))}
    </ol>
  );
}
