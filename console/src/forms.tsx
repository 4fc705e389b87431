// Forms from JSON Schemas, by rjsf, in this page's clothes. And JSON by hand, for what no form can
// say and for what the server is to refuse.

// Not from the package itself, which brings its tests' validator along.
import withTheme from "@rjsf/core/lib/withTheme.js";
import type {
  ArrayFieldItemTemplateProps,
  ArrayFieldTemplateProps,
  DescriptionFieldProps,
  ErrorSchema,
  Experimental_DefaultFormStateBehavior,
  FieldErrorProps,
  FieldTemplateProps,
  IconButtonProps,
  MultiSchemaFieldTemplateProps,
  ObjectFieldTemplateProps,
  RJSFSchema,
  WidgetProps,
  WrapIfAdditionalTemplateProps,
} from "@rjsf/utils";
import {
  ADDITIONAL_PROPERTY_FLAG,
  ariaDescribedByIds,
  buttonId,
  canExpand,
  descriptionId,
  enumOptionValueDecoder,
  enumOptionValueEncoder,
  errorId,
  optionId,
} from "@rjsf/utils";
import { Component, useId, useMemo, useRef, useState, type ReactNode } from "react";
import type { Schema } from "./protocol";
import { forForm, uiFor } from "./schemas";
import { validator } from "./validator";

// ------------------------------------------------------------------------------- rjsf's clothes

function FieldTemplate(props: FieldTemplateProps) {
  const { id, label, required, displayLabel, description, rawDescription, children, errors, help } =
    props;
  const { hidden, rawErrors, schema, uiSchema, hideError } = props;
  if (hidden) return <div hidden>{children}</div>;
  const wrong = !hideError && (rawErrors?.length ?? 0) > 0;
  const group = ["checkboxes", "radio"].includes(String(uiSchema?.["ui:widget"]));
  const own = schema.type === "boolean" && !group;
  const labelled = displayLabel && !own;
  const Tag = group ? "fieldset" : "div";
  return (
    <WrapIfAdditional {...props}>
      <Tag className={wrong ? "field wrong" : "field"}>
        {labelled &&
          (group ? (
            <legend>
              {label}
              {required ? <Required /> : null}
            </legend>
          ) : (
            <label htmlFor={id}>
              {label}
              {required ? <Required /> : null}
            </label>
          ))}
        {displayLabel && rawDescription ? description : null}
        {children}
        {errors}
        {help}
      </Tag>
    </WrapIfAdditional>
  );
}

function Required() {
  return (
    <span className="required" title="Required">
      {" "}
      required
    </span>
  );
}

function WrapIfAdditional(
  props: Pick<
    WrapIfAdditionalTemplateProps,
    "id" | "label" | "schema" | "onKeyRenameBlur" | "onRemoveProperty" | "children"
  >,
) {
  const { id, label, schema, onKeyRenameBlur, onRemoveProperty, children } = props;
  if (!(ADDITIONAL_PROPERTY_FLAG in schema)) return <>{children}</>;
  return (
    <div className="row">
      <div className="field">
        <label htmlFor={`${id}-key`}>Name</label>
        <input id={`${id}-key`} type="text" defaultValue={label} onBlur={onKeyRenameBlur} />
      </div>
      <div className="grow">{children}</div>
      <button
        type="button"
        className="small quiet"
        id={buttonId(id, "remove")}
        onClick={onRemoveProperty}
      >
        Remove {label}
      </button>
    </div>
  );
}

function DescriptionField({ id, description }: DescriptionFieldProps) {
  return description ? (
    <p id={id} className="hint">
      {description}
    </p>
  ) : null;
}

function FieldError({ errors, fieldPathId }: FieldErrorProps) {
  const shown = (errors ?? []).filter(Boolean);
  if (shown.length === 0) return null;
  return (
    <ul id={errorId(fieldPathId)} className="field-errors">
      {shown.map((error, i) => (
        <li key={i}>{error}</li>
      ))}
    </ul>
  );
}

function ObjectField(props: ObjectFieldTemplateProps) {
  const { title, description, properties, fieldPathId, schema, uiSchema, formData, onAddProperty } =
    props;
  const root = fieldPathId.path.length === 0;
  const content = (
    <>
      {properties.map((property) => property.content)}
      {canExpand(schema, uiSchema, formData) && (
        <button type="button" className="small" onClick={onAddProperty}>
          Add a property
        </button>
      )}
    </>
  );
  if (root) return <div className="fields">{content}</div>;
  return (
    <fieldset className="group" id={fieldPathId.$id}>
      {title && <legend>{title}</legend>}
      {description && (
        <p className="hint" id={descriptionId(fieldPathId)}>
          {description}
        </p>
      )}
      {props.optionalDataControl}
      {content}
    </fieldset>
  );
}

function ArrayField(props: ArrayFieldTemplateProps) {
  const { title, items, canAdd, onAddClick, fieldPathId, required, schema } = props;
  return (
    <fieldset className="group" id={fieldPathId.$id}>
      <legend>
        {title}
        {required ? <Required /> : null}
      </legend>
      {schema.description && (
        <p className="hint" id={descriptionId(fieldPathId)}>
          {schema.description}
        </p>
      )}
      {props.optionalDataControl}
      {items}
      {canAdd && (
        <button
          type="button"
          className="small"
          id={buttonId(fieldPathId, "add")}
          onClick={onAddClick}
        >
          Add an item
        </button>
      )}
    </fieldset>
  );
}

function ArrayItem({ children, hasToolbar, buttonsProps, index }: ArrayFieldItemTemplateProps) {
  return (
    <div className="row">
      <div className="grow">{children}</div>
      {hasToolbar && buttonsProps.hasRemove && (
        <button type="button" className="small quiet" onClick={buttonsProps.onRemoveItem}>
          Remove<span className="sr-only"> item {index + 1}</span>
        </button>
      )}
    </div>
  );
}

function MultiSchema({ selector, optionSchemaField }: MultiSchemaFieldTemplateProps) {
  return (
    <div className="group">
      {selector}
      {optionSchemaField}
    </div>
  );
}

function OptionalData({ label, onAddClick, onRemoveClick, id }: any) {
  const act = onAddClick ?? onRemoveClick;
  if (!act) return null;
  return (
    <button type="button" className="small quiet" id={id} onClick={act}>
      {label}
    </button>
  );
}

function IconButton({
  icon,
  iconType: _,
  uiSchema: _u,
  registry: _r,
  color: _c,
  ...rest
}: IconButtonProps) {
  return (
    <button type="button" {...rest} className="small quiet">
      {rest.title ?? icon}
    </button>
  );
}

/** Radio buttons. rjsf's own have no room for the description's id on the group. */
function Radios({ id, options, value, onChange, required }: WidgetProps) {
  const choices = options.enumOptions ?? [];
  return (
    <div
      className="choices inline"
      role="radiogroup"
      aria-describedby={ariaDescribedByIds(id)}
      aria-required={required}
    >
      {choices.map((option, i) => (
        <label key={i}>
          <input
            type="radio"
            id={optionId(id, i)}
            name={id}
            checked={option.value === value}
            value={enumOptionValueEncoder(option.value, i)}
            onChange={(event) =>
              onChange(enumOptionValueDecoder(event.target.value, choices, undefined, undefined))
            }
          />
          <span>{option.label}</span>
        </label>
      ))}
    </div>
  );
}

const Form = withTheme({
  templates: {
    FieldTemplate,
    DescriptionFieldTemplate: DescriptionField,
    FieldErrorTemplate: FieldError,
    ObjectFieldTemplate: ObjectField,
    ArrayFieldTemplate: ArrayField,
    ArrayFieldItemTemplate: ArrayItem,
    MultiSchemaFieldTemplate: MultiSchema,
    OptionalDataControlsTemplate: OptionalData,
    ErrorListTemplate: () => null,
    ButtonTemplates: {
      AddButton: IconButton,
      RemoveButton: IconButton,
      ClearButton: IconButton,
      CopyButton: IconButton,
      MoveUpButton: IconButton,
      MoveDownButton: IconButton,
    } as never,
  },
  widgets: { RadioWidget: Radios },
});

// --------------------------------------------------------------------------------- what is used

/** What the schema gives is filled in; what it does not give nobody has chosen, not even a "no". */
const DEFAULTS: Experimental_DefaultFormStateBehavior = {
  emptyObjectFields: "skipEmptyDefaults",
  requiredBooleanDefault: "skip",
  arrayMinItems: { populate: "requiredOnly" },
};

interface Props {
  schema: Schema;
  value: Record<string, unknown>;
  onChange: (value: Record<string, unknown>) => void;
  onSubmit: (value: Record<string, unknown>) => void;
  /** What the server found wrong, by field. */
  errors?: Record<string, string[]>;
  prefix: string;
  children: ReactNode;
}

/** A form, or the same as JSON. `children` are the buttons; one of them submits. */
export function SchemaForm({ schema, value, onChange, onSubmit, errors, prefix, children }: Props) {
  const shown = useMemo(() => forForm(schema), [schema]);
  const ui = useMemo(() => uiFor(shown), [shown]);
  const [json, setJson] = useState<string | null>(null);
  const formId = useId();
  const [seen, setSeen] = useState(errors);
  const extra = useMemo(() => {
    const found: ErrorSchema = {};
    for (const [name, list] of Object.entries(seen ?? {}))
      found[name] = { __errors: list } as never;
    return found;
  }, [seen]);
  const dropped = (next: Record<string, unknown>) => {
    // A field that was changed is no longer what the server refused.
    const kept = Object.entries(seen ?? {}).filter(([name]) => next[name] === value[name]);
    if (kept.length !== Object.keys(seen ?? {}).length) setSeen(Object.fromEntries(kept));
    onChange(next);
  };

  const toggle = (
    <button
      type="button"
      className="quiet small mode"
      onClick={() => setJson(json === null ? JSON.stringify(value, null, 2) : null)}
    >
      {json === null ? "Write JSON" : "Back to the form"}
    </button>
  );
  if (json !== null) {
    return (
      <JsonForm
        source={json}
        onSource={setJson}
        onSubmit={onSubmit}
        onValue={onChange}
        toggle={toggle}
        prefix={prefix}
      >
        {children}
      </JsonForm>
    );
  }
  return (
    <Boundary
      fallback={
        <JsonForm source="{}" onSubmit={onSubmit} onValue={onChange} toggle={null} prefix={prefix}>
          <p className="hint">No form can be made of this schema, so this takes JSON.</p>
          {children}
        </JsonForm>
      }
    >
      <Form
        key={formId}
        className="schema-form"
        idPrefix={prefix}
        schema={shown as RJSFSchema}
        uiSchema={ui}
        validator={validator}
        formData={value}
        extraErrors={extra}
        onChange={(event) => dropped((event.formData ?? {}) as Record<string, unknown>)}
        onSubmit={(event) => onSubmit((event.formData ?? {}) as Record<string, unknown>)}
        onError={() => undefined}
        noHtml5Validate
        showErrorList={false}
        focusOnFirstError={({ property }) => focusField(prefix, property)}
        experimental_defaultFormStateBehavior={DEFAULTS}
      >
        <div className="buttons">
          {children}
          {toggle}
        </div>
      </Form>
    </Boundary>
  );
}

/** rjsf's own way does not reach selects. */
function focusField(prefix: string, property: string | undefined) {
  const id = CSS.escape([prefix, ...(property ?? "").split(".").slice(1)].join("_"));
  const inputs = ["input", "select", "textarea"];
  const exact = document.querySelector<HTMLElement>(inputs.map((tag) => `${tag}#${id}`).join());
  const within = inputs.map((tag) => `${tag}[id^="${id}"]`).join();
  (exact ?? document.querySelector<HTMLElement>(within))?.focus();
}

interface JsonProps {
  source: string;
  onSource?: (source: string) => void;
  onValue: (value: Record<string, unknown>) => void;
  onSubmit: (value: Record<string, unknown>) => void;
  toggle: ReactNode;
  prefix: string;
  children: ReactNode;
}

function JsonForm({ source, onSource, onValue, onSubmit, toggle, prefix, children }: JsonProps) {
  const [wrong, setWrong] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const read = (): Record<string, unknown> | null => {
    try {
      const value: unknown = JSON.parse(area.current!.value || "{}");
      return typeof value === "object" && value !== null && !Array.isArray(value)
        ? (value as Record<string, unknown>)
        : null;
    } catch {
      return null;
    }
  };
  return (
    <form
      className="schema-form"
      onSubmit={(event) => {
        event.preventDefault();
        const value = read();
        setWrong(value === null);
        if (value === null) area.current!.focus();
        else onSubmit(value);
      }}
    >
      <div className={wrong ? "field wrong" : "field"}>
        <label htmlFor={`${prefix}-json`}>JSON object</label>
        <p className="hint" id={`${prefix}-json-hint`}>
          Sent as it is: only the server checks it.
        </p>
        <textarea
          ref={area}
          id={`${prefix}-json`}
          className="code"
          rows={8}
          spellCheck={false}
          defaultValue={source}
          aria-describedby={`${prefix}-json-hint ${prefix}-json-error`}
          aria-invalid={wrong}
          onChange={(event) => {
            onSource?.(event.target.value);
            const value = read();
            setWrong(false);
            if (value !== null) onValue(value);
          }}
        />
        {wrong && (
          <ul className="field-errors" id={`${prefix}-json-error`}>
            <li>must be a JSON object</li>
          </ul>
        )}
      </div>
      <div className="buttons">
        {children}
        {toggle}
      </div>
    </form>
  );
}

/** Servers may send what neither a form library nor this page expects. */
export class Boundary extends Component<
  { fallback: ReactNode; children: ReactNode },
  { broken: boolean }
> {
  override state = { broken: false };

  static getDerivedStateFromError() {
    return { broken: true };
  }

  override render() {
    return this.state.broken ? this.props.fallback : this.props.children;
  }
}
