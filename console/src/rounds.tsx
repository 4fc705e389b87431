// The time line of a flow: what went out and what came back in each round, progress and log lines,
// and in debug mode what the sealed state says.

import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import type { Answer } from "./client";
import { Result } from "./content";
import type { Flow, Round } from "./flow";
import { Json, JsonBox, Panels } from "./json";
import type { JsonObject } from "./protocol";
import { isObject, text } from "./protocol";
import { Questions } from "./questions";

export const DEBUG =
  document.querySelector<HTMLMetaElement>('meta[name="console-debug"]')?.content === "yes";

interface Props {
  flow: Flow;
  server: string;
  onRead: (uri: string) => void;
  onRefused: (answer: Answer & { kind: "refused" }) => React.ReactNode;
  openState: (token: string) => Promise<JsonObject>;
}

export function FlowRun({ flow, server, onRead, onRefused, openState }: Props) {
  const view = useSyncExternalStore(flow.subscribe, flow.snapshot);
  const { phase, rounds, answer } = view;
  const heading = useRef<HTMLHeadingElement>(null);
  const last = rounds.at(-1);

  // What had the focus is gone with the form that was sent; go where things go on.
  const { number } = last ?? { number: 0 };
  useEffect(() => {
    heading.current?.focus({ preventScroll: phase === "running" });
  }, [phase, number]);

  if (!last) return null;
  return (
    <section className="run" aria-labelledby="run-title">
      <div className="run-head">
        <h2 id="run-title" tabIndex={-1} ref={heading}>
          {title(phase, last, rounds.length, server)}
        </h2>
        {(phase === "running" || phase === "asking" || phase === "waiting") && (
          <button type="button" className="quiet small" onClick={() => flow.stop()}>
            Stop
          </button>
        )}
      </div>
      <Announcer phase={phase} round={last} answer={answer} />

      {phase === "running" && <Working round={last} />}
      {phase === "asking" && (
        <Questions
          key={last.number}
          asks={last.asks}
          round={last.number}
          onReply={(answers) => flow.reply(answers)}
        />
      )}
      {phase === "waiting" && (
        <Waiting
          key={last.number}
          comebacks={rounds.filter(waits).length - 1}
          onAgain={() => flow.again()}
        />
      )}
      {answer && (
        <div className="card">
          {answer.kind === "result" && <Result result={answer.result} onRead={onRead} />}
          {answer.kind === "error" && <ErrorCard error={answer.error} />}
          {answer.kind === "failed" && <p className="notice warning">{answer.reason}</p>}
          {answer.kind === "refused" && onRefused(answer)}
          {phase === "failed" && (
            <div className="buttons">
              <button type="button" onClick={() => flow.again()}>
                Try this round again
              </button>
            </div>
          )}
        </div>
      )}
      {rounds.some((round) => round.log.length > 0) && <Log rounds={rounds} />}

      <h3>Rounds</h3>
      <ol className="rounds" reversed>
        {[...rounds].reverse().map((round) => (
          <RoundItem key={round.number} round={round} openState={openState} />
        ))}
      </ol>
    </section>
  );
}

function waits({ asks, exchange }: Round): boolean {
  const answer = exchange?.answer;
  return answer?.kind === "result" && answer.result.resultType === "input_required" && !asks.length;
}

function title(phase: string, { number, asks }: Round, rounds: number, server: string): string {
  switch (phase) {
    case "running":
      return `Round ${number} is running`;
    case "asking":
      return asks.length === 1 ? `${server} asks` : `${server} asks ${asks.length} things`;
    case "waiting":
      return "The server is waiting";
    case "done":
      return rounds === 1 ? "Result" : `Result after ${rounds} rounds`;
    default:
      return `Round ${number} failed`;
  }
}

/** Says aloud what others see happen. */
function Announcer({
  phase,
  round,
  answer,
}: {
  phase: string;
  round: Round;
  answer: Answer | null;
}) {
  const { progress } = round;
  let message = "";
  if (phase === "running" && progress) message = progressText(progress);
  else if (phase === "done")
    message =
      answer?.kind === "result" && answer.result.isError ? "The tool reports an error" : "Done";
  else if (phase === "waiting") message = "Nothing is asked. The server wants you to come back.";
  return (
    <p className="sr-only" role="status" aria-live="polite">
      {message}
    </p>
  );
}

function progressText({ done, total, message }: NonNullable<Round["progress"]>): string {
  const share = total === null ? String(done) : `${done} of ${total}`;
  return message ? `${message} (${share})` : share;
}

function Working({ round }: { round: Round }) {
  const { progress } = round;
  return (
    <div className="working">
      <label htmlFor="progress">
        {progress ? progressText(progress) : "Waiting for the server"}
      </label>
      {progress && progress.total !== null && progress.total > 0 ? (
        <progress id="progress" max={progress.total} value={progress.done} />
      ) : (
        <progress id="progress" />
      )}
    </div>
  );
}

const PATIENCE = [2, 3, 5, 8, 10];

/** A server that asks nothing is waiting for something elsewhere: come back, ever more slowly. */
function Waiting({ comebacks, onAgain }: { comebacks: number; onAgain: () => void }) {
  const [automatic, setAutomatic] = useState(true);
  const again = useRef(onAgain);
  useEffect(() => {
    if (!automatic) return;
    const seconds = PATIENCE[Math.min(comebacks, PATIENCE.length - 1)]!;
    const timer = setTimeout(() => again.current(), seconds * 1000);
    return () => clearTimeout(timer);
  }, [automatic, comebacks]);
  return (
    <div className="card">
      <p>
        It asks nothing now, and wants the page to come back: usually somebody has to do something
        elsewhere first.
      </p>
      <div className="buttons">
        <button type="button" className="primary" onClick={onAgain}>
          Check now
        </button>
        <label className="choice">
          <input
            type="checkbox"
            checked={automatic}
            onChange={(e) => setAutomatic(e.target.checked)}
          />
          <span>Check by itself every few seconds</span>
        </label>
      </div>
    </div>
  );
}

export function ErrorCard({ error }: { error: { code: number; message: string; data?: unknown } }) {
  return (
    <div className="notice error" role="alert">
      <p>
        <strong>{text(error.message)}</strong> <span className="tag">{text(error.code)}</span>
      </p>
      {error.data !== undefined && <Json value={error.data} />}
    </div>
  );
}

function Log({ rounds }: { rounds: Round[] }) {
  return (
    <>
      <h3>Log</h3>
      <ul className="log" aria-label="Log lines" tabIndex={0}>
        {rounds.flatMap((round) =>
          round.log.map((line, i) => (
            <li key={`${round.number}-${i}`} className={`log-${line.level}`}>
              <span className="level">{line.level}</span>
              <span className="log-text">
                {line.logger && <span className="muted">{line.logger}: </span>}
                {text(line.data)}
              </span>
            </li>
          )),
        )}
      </ul>
    </>
  );
}

// ------------------------------------------------------------------------------- the time line

function RoundItem({ round, openState }: { round: Round; openState: Props["openState"] }) {
  const { exchange, request, asks, took } = round;
  const { inputResponses } = request.params;
  const said = Object.entries(isObject(inputResponses) ? inputResponses : {}).map(
    ([key, answer]) => (isObject(answer) && answer.action ? `${key} (${answer.action})` : key),
  );
  const asked = asks.map(({ key, reason }) => (reason === null ? key : `${key} (again)`));
  const history = [
    said.length > 0 && `Answered ${said.join(", ")}`,
    asked.length > 0 && `Asked ${asked.join(", ")}`,
  ]
    .filter(Boolean)
    .join(" · ");
  const panels = [
    { title: "Request", value: { headers: round.requestHeaders, body: request } },
    { title: `Notifications (${round.notifications.length})`, value: round.notifications },
    {
      title: "Response",
      value: exchange && { headers: exchange.headers, body: exchange.response },
    },
  ]
    .filter(({ value }) => (Array.isArray(value) ? value.length > 0 : value !== null))
    .map(({ title, value }) => ({ title, content: () => <JsonBox value={value} /> }));
  const { state } = round;
  if (DEBUG && state !== null) {
    panels.push({
      title: "Sealed state",
      content: () => <SealedState token={state} openState={openState} />,
    });
  }
  return (
    <li className="round">
      <div className="round-head">
        <strong>Round {round.number}</strong>
        <span>{outcome(round)}</span>
        <span className="muted numbers">
          {exchange?.status !== null && exchange !== null && `HTTP ${exchange.status}`}
          {took !== null &&
            ` · ${took < 1000 ? `${Math.round(took)} ms` : `${(took / 1000).toFixed(1)} s`}`}
        </span>
      </div>
      {history && <p className="muted">{history}</p>}
      <Panels panels={panels} />
    </li>
  );
}

function outcome({ exchange, asks, progress }: Round): string {
  if (exchange === null) return progress ? progressText(progress) : "running";
  const { answer } = exchange;
  switch (answer.kind) {
    case "result":
      if (asks.length) return asks.length === 1 ? "asks" : `asks ${asks.length} things`;
      if (waits({ exchange, asks } as Round)) return "waits";
      return answer.result.isError === true ? "error of the tool" : "complete";
    case "error":
      return `error ${answer.error.code}`;
    case "refused":
      return "refused";
    default:
      return "failed";
  }
}

function SealedState({ token, openState }: { token: string; openState: Props["openState"] }) {
  const [said, setSaid] = useState<JsonObject | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    openState(token).then(setSaid, (error: unknown) =>
      setProblem(error instanceof Error ? error.message : "It cannot be opened"),
    );
  }, [token]); // eslint-disable-line
  return (
    <div className="json-box">
      {problem && <p className="notice warning">{problem}</p>}
      {said && (
        <>
          <dl className="facts">
            <dt>Flow</dt>
            <dd>
              <code className="break">{text(said.flow_id)}</code>, round {text(said.round)}
            </dd>
            <dt>Good for</dt>
            <dd>
              {lasting(said.expires, said.now)}; its flow for {lasting(said.ends, said.now)}
            </dd>
            <dt>Belongs to</dt>
            <dd>
              {text(said.method)} {text(said.target)}
              {said.version !== null && `, version ${text(said.version)}`}
            </dd>
            <dt>Sealed with</dt>
            <dd>
              {text(said.kid)}, for {text(said.audience)}; {token.length} characters
            </dd>
          </dl>
          <Json value={said.journal} />
        </>
      )}
    </div>
  );
}

function lasting(until: unknown, now: unknown): string {
  const seconds = Math.round(Number(until) - Number(now));
  if (seconds <= 0) return "no more";
  return seconds < 120 ? `${seconds} s more` : `${Math.round(seconds / 60)} min more`;
}
