// Stands in for the Markdown library of rjsf: what servers write is shown as it is.

export function Markdown({ children }: { children?: string }) {
  return children;
}
