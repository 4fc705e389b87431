// What rjsf wants of a validator, on @cfworker/json-schema: it interprets schemas. ajv compiles them
// with `new Function`, which the page's Content-Security-Policy forbids, and is meant to.

import type { OutputUnit, Schema } from "@cfworker/json-schema";
import { Validator } from "@cfworker/json-schema";
import type {
  CustomValidator,
  ErrorSchema,
  RJSFSchema,
  RJSFValidationError,
  ValidatorType,
} from "@rjsf/utils";
import {
  createErrorHandler,
  toErrorSchema,
  unwrapErrorHandler,
  validationDataMerge,
} from "@rjsf/utils";

/** Keywords whose error only says that there is one below. */
const OUTER = new Set([
  "$ref", "$recursiveRef", "properties", "patternProperties", "additionalProperties",
  "unevaluatedProperties", "items", "prefixItems", "additionalItems", "unevaluatedItems",
  "allOf", "dependentSchemas", "dependencies", "propertyNames", "if", "then", "else",
]); // prettier-ignore

/** Sentences for the keywords people meet; `limit` is what the schema says. They are the server's. */
const SENTENCES: Record<string, (limit: any) => string> = {
  minimum: (limit) => `must be at least ${limit}`,
  maximum: (limit) => `must be at most ${limit}`,
  exclusiveMinimum: (limit) => `must be more than ${limit}`,
  exclusiveMaximum: (limit) => `must be less than ${limit}`,
  multipleOf: (limit) => `must be a multiple of ${limit}`,
  minLength: (limit) => `must have at least ${limit} characters`,
  maxLength: (limit) => `must have at most ${limit} characters`,
  minItems: (limit) => `must have at least ${limit} items`,
  maxItems: (limit) => `must have at most ${limit} items`,
  uniqueItems: () => "must not have the same item twice",
  pattern: (limit) => `must match ${limit}`,
  format: (limit) => FORMATS[limit] ?? `must be a ${limit}`,
  enum: () => "must be one of the options",
  const: (limit) => `must be ${JSON.stringify(limit)}`,
  type: (limit) => TYPES[limit] ?? `must be ${Array.isArray(limit) ? limit.join(" or ") : limit}`,
};
const TYPES: Record<string, string> = {
  string: "must be text",
  integer: "must be a whole number",
  number: "must be a number",
  boolean: "must be yes or no",
  array: "must be a list",
  object: "must be an object",
};
const FORMATS: Record<string, string> = {
  email: "must be an email address",
  uri: "must be a URL",
  date: "must be a date like 2026-07-28",
  "date-time": "must be a date and time like 2026-07-28T09:30:00Z",
};

function rawErrors(schema: RJSFSchema, data: unknown): OutputUnit[] {
  // It marks the schemas that it has seen, and it knows no `undefined`.
  const copy = JSON.parse(JSON.stringify(schema)) as Schema;
  const instance: unknown = data === undefined ? {} : JSON.parse(JSON.stringify(data));
  return new Validator(copy, "2020-12", false).validate(instance).errors;
}

/** The errors as rjsf lists them, each where the person can mend it. */
export function problems(schema: RJSFSchema, data: unknown): RJSFValidationError[] {
  const errors = rawErrors(schema, data);
  const alternatives = errors.filter(({ keyword }) => keyword === "anyOf" || keyword === "oneOf");
  const found: RJSFValidationError[] = [];
  for (const error of errors) {
    const { keyword, keywordLocation, instanceLocation } = error;
    if (OUTER.has(keyword)) continue;
    // Of alternatives that all fail, no single one says what is wrong.
    if (
      alternatives.some(
        (outer) => outer !== error && keywordLocation.startsWith(`${outer.keywordLocation}/`),
      )
    ) {
      continue;
    }
    const path = pointer(instanceLocation);
    let message: string;
    if (keyword === "required") {
      path.push(/required property "(.*)"\.$/s.exec(error.error)?.[1] ?? "");
      message = "is required";
    } else {
      const limit = lookUp(schema, keywordLocation);
      message =
        SENTENCES[keyword]?.(limit) ?? (keyword === "false" ? "is not known here" : error.error);
    }
    const property = `.${path.join(".")}`;
    if (found.some((other) => other.property === property && other.message === message)) continue;
    found.push({ name: keyword, message, property, stack: `${path.join(".")} ${message}`.trim() });
  }
  // In the order of the fields, so that the first one is the first on the page.
  const fields = Object.keys(schema.properties ?? {});
  const place = ({ property }: RJSFValidationError) => fields.indexOf(property!.split(".")[1]!);
  return found.sort((one, other) => place(one) - place(other));
}

function pointer(location: string): string[] {
  return location
    .split("/")
    .slice(1)
    .map((part) => decode(part).replaceAll("~1", "/").replaceAll("~0", "~"));
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What stands in the schema at a keyword's location, through the references on the way. */
function lookUp(root: RJSFSchema, location: string): unknown {
  let node: any = root;
  for (const part of pointer(location)) {
    if (part === "$ref" && typeof node?.$ref === "string" && node.$ref.startsWith("#")) {
      node = lookUp(root, node.$ref);
    } else node = node?.[part];
  }
  return node;
}

export const validator: ValidatorType = {
  validateFormData(
    formData: any,
    schema: RJSFSchema,
    customValidate?: CustomValidator,
    transformErrors?: (errors: RJSFValidationError[], uiSchema?: any) => RJSFValidationError[],
    uiSchema?: any,
  ) {
    let errors: RJSFValidationError[];
    try {
      errors = problems(schema, formData);
    } catch {
      errors = []; // A schema that cannot be read checks nothing here; the server checks.
    }
    if (transformErrors) errors = transformErrors(errors, uiSchema);
    const errorSchema: ErrorSchema = toErrorSchema(errors);
    if (!customValidate) return { errors, errorSchema };
    const handler = customValidate(formData, createErrorHandler(formData), uiSchema, errorSchema);
    return validationDataMerge({ errors, errorSchema }, unwrapErrorHandler(handler));
  },

  isValid(schema: RJSFSchema, formData: any, rootSchema: RJSFSchema) {
    try {
      const whole = { ...schema, $defs: { ...rootSchema.$defs, ...schema.$defs } };
      return rawErrors(whole, formData).length === 0;
    } catch {
      return false;
    }
  },

  rawValidation(schema: RJSFSchema, formData?: any) {
    try {
      return { errors: rawErrors(schema, formData) as any[] };
    } catch (error) {
      return { validationError: error as Error };
    }
  },
};
