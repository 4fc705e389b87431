// What this client declares that it can do: servers ask accordingly, or say what they miss.

import { useEffect, useRef } from "react";
import type { Preferences } from "./client";
import type { Capabilities } from "./protocol";
import { VERSION } from "./protocol";

const CAPABILITIES: Record<keyof Capabilities, string> = {
  form: "Answers forms (elicitation, form mode)",
  url: "Opens links (elicitation, url mode)",
  sampling: "Replies for a model (sampling)",
  tools: "Takes tools and context along with that",
  roots: "Lists folders (roots)",
};

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

interface Props {
  open: boolean;
  preferences: Preferences;
  onChange: (preferences: Preferences) => void;
  onClose: () => void;
}

export function Settings({ open, preferences, onChange, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current!;
    if (open && !element.open) element.showModal();
    else if (!open && element.open) element.close();
  }, [open]);
  const { capabilities, logLevel } = preferences;
  return (
    <dialog ref={dialog} aria-labelledby="settings-title" onClose={onClose}>
      <h2 id="settings-title">Client</h2>
      <p className="hint">
        What this page says of itself in every request, with revision{" "}
        <span className="nowrap">{VERSION}</span>.
      </p>
      <fieldset className="field">
        <legend>It can do this</legend>
        <div className="choices">
          {(Object.keys(CAPABILITIES) as (keyof Capabilities)[]).map((name) => (
            <label key={name}>
              <input
                type="checkbox"
                checked={capabilities[name]}
                onChange={(event) =>
                  onChange({
                    ...preferences,
                    capabilities: { ...capabilities, [name]: event.target.checked },
                  })
                }
              />
              <span>{CAPABILITIES[name]}</span>
            </label>
          ))}
        </div>
      </fieldset>
      <div className="field">
        <label htmlFor="log-level">Log lines from</label>
        <select
          id="log-level"
          value={logLevel}
          onChange={(event) => onChange({ ...preferences, logLevel: event.target.value })}
        >
          <option value="">none</option>
          {LEVELS.map((level) => (
            <option key={level}>{level}</option>
          ))}
        </select>
      </div>
      <div className="buttons end">
        <button type="button" className="primary" onClick={onClose}>
          Done
        </button>
      </div>
    </dialog>
  );
}
