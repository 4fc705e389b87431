// Signing in: from a challenge to an access token (basic/authorization). Tokens stay in memory.
// What must survive the way to the authorization server and back lies in sessionStorage, and is
// taken out as soon as the page is back: the PKCE verifier, and whom the answer must come from.

import { ENDPOINT } from "./client";
import type { Challenge } from "./headers";
import { isObject } from "./protocol";

const PENDING = "mcp-console-pending";
const CLIENTS = "mcp-console-clients";

/** Where authorization servers send people back to: this page, without anything behind it. */
export const REDIRECT_URI = `${location.origin}${location.pathname}`;

export interface Plan {
  issuer: string;
  authorizationEndpoint: string;
  tokenEndpoint: string;
  registrationEndpoint: string | null;
  issRequired: boolean;
  resource: string;
  scope: string | null;
}

export interface Tokens {
  accessToken: string;
  refreshToken: string | null;
  scope: string | null;
  issuer: string;
  tokenEndpoint: string;
  clientId: string;
  resource: string;
}

interface Pending {
  state: string;
  verifier: string;
  clientId: string;
  plan: Plan;
  /** What the person was doing: the fragment of the page, and what was typed there. */
  place: string;
  draft: unknown;
}

export class SignInError extends Error {}

// --------------------------------------------------------------------------------- discovery

/** Find out where tokens for this endpoint come from. Raises: SignInError. */
export async function discover(challenge: Challenge | null, granted: string | null): Promise<Plan> {
  const metadata = await resourceMetadata(challenge?.resourceMetadata);
  const resource = metadata.resource;
  // RFC 9728 §3.3: metadata of another resource must not be used.
  if (resource !== ENDPOINT && resource !== ENDPOINT.replace(/\/$/, "")) {
    throw new SignInError(
      `This server calls itself ${String(resource)}, but this page calls it ${ENDPOINT}. ` +
        "Tokens for one are not for the other: open the console under that address.",
    );
  }
  const issuer = Array.isArray(metadata.authorization_servers)
    ? metadata.authorization_servers.find((server) => typeof server === "string")
    : undefined;
  if (issuer === undefined) throw new SignInError("The server names no authorization server.");
  const server = await serverMetadata(issuer);
  if (!(server.code_challenge_methods_supported ?? []).includes?.("S256")) {
    throw new SignInError(`${issuer} does not say that it supports PKCE with S256.`);
  }
  const wanted = challenge?.scope?.split(" ") ?? metadata.scopes_supported ?? null;
  const scopes = Array.isArray(wanted) ? [...(granted?.split(" ") ?? []), ...wanted] : null;
  return {
    issuer,
    authorizationEndpoint: secure(server.authorization_endpoint),
    tokenEndpoint: secure(server.token_endpoint),
    registrationEndpoint: server.registration_endpoint
      ? secure(server.registration_endpoint)
      : null,
    issRequired: server.authorization_response_iss_parameter_supported === true,
    resource,
    scope: scopes ? [...new Set(scopes.filter(Boolean))].join(" ") || null : null,
  };
}

async function resourceMetadata(named: string | undefined): Promise<{ [key: string]: any }> {
  const { origin, pathname } = new URL(ENDPOINT);
  const wellKnown = `${origin}/.well-known/oauth-protected-resource`;
  const places = named
    ? [secure(named)]
    : [`${wellKnown}${pathname.replace(/\/$/, "")}`, wellKnown];
  for (const place of places) {
    const found = await document(place);
    if (found) return found;
  }
  throw new SignInError("The server does not say where to sign in (RFC 9728).");
}

async function serverMetadata(issuer: string): Promise<{ [key: string]: any }> {
  const { origin, pathname } = new URL(secure(issuer));
  const path = pathname.replace(/\/$/, "");
  const places = [
    `${origin}/.well-known/oauth-authorization-server${path}`,
    `${origin}/.well-known/openid-configuration${path}`,
    ...(path ? [`${origin}${path}/.well-known/openid-configuration`] : []),
  ];
  for (const place of places) {
    const found = await document(place);
    if (!found) continue;
    // RFC 8414 §3.3, byte for byte.
    if (found.issuer !== issuer) {
      throw new SignInError(`${place} speaks for another issuer than ${issuer}.`);
    }
    return found;
  }
  throw new SignInError(
    `${issuer} cannot be asked where people sign in. It may not allow pages to ask (CORS), or ` +
      "this page may not ask it: Console(connect=[…]) lists the origins that it may talk to.",
  );
}

async function document(place: string): Promise<{ [key: string]: any } | null> {
  try {
    const response = await fetch(place, { credentials: "omit", redirect: "error" });
    const found: unknown = response.ok ? await response.json() : null;
    return isObject(found) ? found : null;
  } catch {
    return null;
  }
}

/** https, or http on this computer. Raises: SignInError. */
function secure(url: unknown): string {
  if (typeof url === "string" && URL.canParse(url)) {
    const { protocol, hostname } = new URL(url);
    const here = ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
    if (protocol === "https:" || (protocol === "http:" && here)) return url;
  }
  throw new SignInError(`${String(url)} is no https address.`);
}

// -------------------------------------------------------------------------------- there and back

/** What this page is to the authorization server, if it has said so before. */
export function knownClient(issuer: string): string | null {
  const known: unknown = JSON.parse(sessionStorage.getItem(CLIENTS) ?? "{}");
  const found = isObject(known) ? known[issuer] : undefined;
  return typeof found === "string" ? found : null;
}

function remember(issuer: string, clientId: string): void {
  const known: unknown = JSON.parse(sessionStorage.getItem(CLIENTS) ?? "{}");
  const all = isObject(known) ? known : {};
  sessionStorage.setItem(CLIENTS, JSON.stringify({ ...all, [issuer]: clientId }));
}

/** Register this page as a public client (RFC 7591). Raises: SignInError. */
async function register(plan: Plan): Promise<string> {
  if (!plan.registrationEndpoint) {
    throw new SignInError(`${plan.issuer} registers no clients by itself: enter a client ID.`);
  }
  const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const answer = await post(plan.registrationEndpoint, "application/json", {
    client_name: "MCP console",
    redirect_uris: [REDIRECT_URI],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
    application_type: here ? "native" : "web",
  });
  if (typeof answer.client_id !== "string") throw new SignInError(problem(answer, "registration"));
  return answer.client_id;
}

/** Leave for the authorization server, as a new client if none is given. Raises: SignInError. */
export async function leave(
  plan: Plan,
  enteredClient: string,
  place: string,
  draft: unknown,
): Promise<void> {
  if (!window.isSecureContext) {
    throw new SignInError("Browsers let pages sign in over https or on this computer only.");
  }
  const clientId = enteredClient || (await register(plan));
  remember(plan.issuer, clientId);
  const verifier = random();
  const pending: Pending = { state: random(), verifier, clientId, plan, place, draft };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const url = new URL(plan.authorizationEndpoint);
  const query: Record<string, string | null> = {
    response_type: "code",
    client_id: clientId,
    redirect_uri: REDIRECT_URI,
    state: pending.state,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256",
    resource: plan.resource,
    scope: plan.scope,
  };
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  location.assign(url);
}

export interface Return {
  tokens: Tokens | null;
  error: string | null;
  place: string;
  draft: unknown;
}

/** What the authorization server sent back with the person, if this is such a return. */
export async function comeBack(): Promise<Return | null> {
  const query = new URLSearchParams(location.search);
  if (!query.has("state") || !(query.has("code") || query.has("error"))) return null;
  const stored = sessionStorage.getItem(PENDING);
  sessionStorage.removeItem(PENDING);
  const pending = stored === null ? null : (JSON.parse(stored) as Pending);
  const place = pending?.place ?? "";
  history.replaceState(null, "", `${location.pathname}${place}`);
  const back = { place, draft: pending?.draft };
  try {
    if (pending === null || query.get("state") !== pending.state) {
      throw new SignInError("This answer belongs to no sign-in that was begun here.");
    }
    const { issuer, issRequired } = pending.plan;
    const iss = query.get("iss");
    // RFC 9207 §2.4, before anything else of the answer is looked at.
    if (iss === null ? issRequired : iss !== issuer) {
      throw new SignInError(`The answer does not come from ${issuer}.`);
    }
    const code = query.get("code");
    if (code === null) {
      const said = { error: query.get("error"), error_description: query.get("error_description") };
      throw new SignInError(problem(said, "sign-in"));
    }
    const tokens = await tokensFor(pending.plan, pending.clientId, {
      grant_type: "authorization_code",
      code,
      redirect_uri: REDIRECT_URI,
      code_verifier: pending.verifier,
    });
    return { ...back, tokens, error: null };
  } catch (error) {
    return { ...back, tokens: null, error: said(error) };
  }
}

/** New tokens for old ones. `null`: the person has to sign in again. */
export async function refresh(tokens: Tokens): Promise<Tokens | null> {
  if (tokens.refreshToken === null) return null;
  try {
    return await tokensFor(tokens, tokens.clientId, {
      grant_type: "refresh_token",
      refresh_token: tokens.refreshToken,
    });
  } catch {
    return null;
  }
}

async function tokensFor(
  from: Pick<Tokens, "issuer" | "tokenEndpoint" | "resource" | "scope">,
  clientId: string,
  form: Record<string, string>,
): Promise<Tokens> {
  const answer = await post(from.tokenEndpoint, "application/x-www-form-urlencoded", {
    ...form,
    client_id: clientId,
    resource: from.resource,
  });
  const { access_token, token_type, refresh_token, scope } = answer;
  if (typeof access_token !== "string" || String(token_type).toLowerCase() !== "bearer") {
    throw new SignInError(problem(answer, "token request"));
  }
  return {
    accessToken: access_token,
    refreshToken: typeof refresh_token === "string" ? refresh_token : null,
    scope: typeof scope === "string" ? scope : from.scope,
    issuer: from.issuer,
    tokenEndpoint: from.tokenEndpoint,
    clientId,
    resource: from.resource,
  };
}

async function post(
  url: string,
  type: string,
  content: Record<string, unknown>,
): Promise<{ [key: string]: any }> {
  const body =
    type === "application/json"
      ? JSON.stringify(content)
      : new URLSearchParams(content as Record<string, string>).toString();
  let answer: unknown;
  try {
    const options = {
      method: "POST",
      headers: { "Content-Type": type, Accept: "application/json" },
    };
    const response = await fetch(url, { ...options, body, credentials: "omit", redirect: "error" });
    answer = await response.json();
  } catch {
    throw new SignInError(`${new URL(url).host} did not answer, or does not let pages ask (CORS).`);
  }
  return isObject(answer) ? answer : {};
}

function problem(answer: { [key: string]: any }, what: string): string {
  const { error, error_description } = answer;
  if (error === "access_denied") return "You were not signed in: access was denied.";
  const said = [error, error_description].filter((part) => typeof part === "string" && part);
  return `The ${what} was refused${said.length ? `: ${said.join(", ")}` : ""}.`;
}

export function said(error: unknown): string {
  return error instanceof SignInError ? error.message : "Signing in failed.";
}

function random(): string {
  return base64url(crypto.getRandomValues(new Uint8Array(32)));
}

function base64url(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
