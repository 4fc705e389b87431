// Who calls: a token from an authorization server, a token by hand, headers by hand. All of it is
// kept in memory only, so that it is gone when the page is closed or loaded again.

import { Fragment, useEffect, useRef, useState } from "react";
import type { Credentials } from "./client";
import type { Challenge } from "./headers";
import type { Plan, Tokens } from "./oauth";
import { discover, knownClient, leave, refresh, said } from "./oauth";

export class Access implements Credentials {
  tokens: Tokens | null = null;
  token = "";
  custom: { name: string; value: string }[] = [];
  /** The last refusal: what it asked for is what a sign-in asks for. */
  challenge: Challenge | null = null;
  private listeners = new Set<() => void>();
  private version = 0;

  subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  snapshot = () => this.version;

  change(changes: Partial<Pick<Access, "tokens" | "token" | "custom" | "challenge">>): void {
    Object.assign(this, changes);
    this.version += 1;
    for (const listener of this.listeners) listener();
  }

  get inUse(): string | null {
    if (this.tokens) return "Signed in";
    if (this.token) return "Token";
    return this.custom.some(({ name }) => name) ? "Headers" : null;
  }

  headers(): Record<string, string> {
    const headers: Record<string, string> = {};
    for (const { name, value } of this.custom) if (name.trim()) headers[name.trim()] = value;
    const token = this.tokens?.accessToken ?? this.token;
    if (token) headers.Authorization = `Bearer ${token}`;
    return headers;
  }

  async renew(): Promise<boolean> {
    const { tokens } = this;
    if (!tokens) return false;
    const renewed = await refresh(tokens);
    if (renewed) this.change({ tokens: renewed });
    return renewed !== null;
  }
}

interface DialogProps {
  access: Access;
  open: boolean;
  onClose: () => void;
  onChanged: () => void;
  probe: () => Promise<Challenge | null>;
  draft: () => unknown;
}

export function AccessDialog({ access, open, onClose, onChanged, probe, draft }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [token, setToken] = useState(access.token);
  const [custom, setCustom] = useState(access.custom);
  const [wrong, setWrong] = useState("");

  useEffect(() => {
    const element = dialog.current!;
    if (open && !element.open) {
      setToken(access.token);
      setCustom(access.custom.length ? access.custom : [{ name: "", value: "" }]);
      setWrong("");
      element.showModal();
    } else if (!open && element.open) element.close();
  }, [open, access]);

  const use = () => {
    const kept = custom.filter(({ name }) => name.trim());
    try {
      // Headers that no request may carry are better refused here than at the next call.
      new Headers([
        ["Authorization", `Bearer ${token.trim()}`],
        ...kept.map(({ name, value }) => [name.trim(), value] as [string, string]),
      ]);
    } catch {
      setWrong("A name or a value has characters that headers cannot carry.");
      return;
    }
    access.change({ token: token.trim(), custom: kept, ...(token.trim() ? { tokens: null } : {}) });
    onChanged();
    onClose();
  };
  const change = (at: number, part: Partial<{ name: string; value: string }>) =>
    setCustom(custom.map((header, i) => (i === at ? { ...header, ...part } : header)));

  return (
    <dialog ref={dialog} aria-labelledby="access-title" onClose={onClose}>
      <h2 id="access-title">Access</h2>
      <p className="hint">
        Kept in memory only, and gone when this page is closed or loaded again.
      </p>
      <h3>Sign in</h3>
      {access.tokens ? (
        <p className="answered">
          <span>
            Signed in at {new URL(access.tokens.issuer).host}
            {access.tokens.scope && ` for ${access.tokens.scope}`}
          </span>
          <button
            type="button"
            className="small"
            onClick={() => {
              access.change({ tokens: null });
              onChanged();
            }}
          >
            Forget
          </button>
        </p>
      ) : (
        open && <SignIn access={access} probe={probe} draft={draft} />
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          use();
        }}
      >
        <h3>By hand</h3>
        <div className="field">
          <label htmlFor="token">Bearer token</label>
          <input
            id="token"
            type="password"
            autoComplete="off"
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </div>
        {custom.map((header, i) => (
          <div className="row" key={i}>
            <div className="field grow">
              <label htmlFor={`header-${i}`}>Header</label>
              <input
                id={`header-${i}`}
                placeholder="X-API-Key"
                autoComplete="off"
                spellCheck={false}
                value={header.name}
                onChange={(event) => change(i, { name: event.target.value })}
              />
            </div>
            <div className="field grow">
              <label htmlFor={`value-${i}`}>Value</label>
              <input
                id={`value-${i}`}
                autoComplete="off"
                spellCheck={false}
                value={header.value}
                onChange={(event) => change(i, { value: event.target.value })}
              />
            </div>
          </div>
        ))}
        <p>
          <button
            type="button"
            className="small"
            onClick={() => setCustom([...custom, { name: "", value: "" }])}
          >
            Add a header
          </button>
        </p>
        {wrong && (
          <p className="notice warning" role="alert">
            {wrong}
          </p>
        )}
        <div className="buttons end">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" className="primary">
            Use these
          </button>
        </div>
      </form>
    </dialog>
  );
}

export function Scopes({ scope }: { scope: string | null | undefined }) {
  return (scope?.split(" ") ?? []).map((one) => (
    <Fragment key={one}>
      <span className="tag">{one}</span>{" "}
    </Fragment>
  ));
}

interface SignInProps {
  access: Access;
  probe: () => Promise<Challenge | null>;
  draft: () => unknown;
  challenge?: Challenge | null;
  label?: string;
}

/** Shows where a person will be sent before they are. */
export function SignIn({ access, probe, draft, challenge, label = "Sign in" }: SignInProps) {
  const [plan, setPlan] = useState<Plan | null>(null);
  const [problem, setProblem] = useState("");
  const [clientId, setClientId] = useState("");
  const [busy, setBusy] = useState(false);

  const attempt = async (what: () => Promise<void>) => {
    setBusy(true);
    setProblem("");
    try {
      await what();
    } catch (error) {
      setProblem(said(error));
    }
    setBusy(false);
  };
  const find = () =>
    attempt(async () => {
      const asked = challenge ?? access.challenge ?? (await probe());
      const found = await discover(asked, access.tokens?.scope ?? null);
      setClientId(knownClient(found.issuer) ?? "");
      setPlan(found);
    });
  const go = () => attempt(() => leave(plan!, clientId.trim(), location.hash, draft()));

  return (
    <div className="sign-in">
      {plan === null ? (
        <button type="button" className="primary" disabled={busy} onClick={() => void find()}>
          {busy ? "Looking where…" : label}
        </button>
      ) : (
        <>
          <p>
            You will be sent to <strong>{new URL(plan.authorizationEndpoint).host}</strong> and come
            back here with access to <code className="break">{plan.resource}</code>
            {plan.scope ? " for " : "."}
            <Scopes scope={plan.scope} />
          </p>
          {(!plan.registrationEndpoint || knownClient(plan.issuer) !== null) && (
            <div className="field">
              <label htmlFor="client-id">Client ID</label>
              <input
                id="client-id"
                value={clientId}
                onChange={(event) => setClientId(event.target.value)}
              />
              <p className="hint">
                {plan.registrationEndpoint
                  ? "Empty: this page registers itself again."
                  : "From the authorization server, which registers no clients by itself."}
              </p>
            </div>
          )}
          <div className="buttons">
            <button type="button" className="primary" disabled={busy} onClick={() => void go()}>
              Continue to {new URL(plan.authorizationEndpoint).host}
            </button>
          </div>
        </>
      )}
      {problem && (
        <p className="notice warning" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}
