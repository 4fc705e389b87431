// Server-sent events out of a response body (HTML §9.2.6), as they arrive.

export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as never).getReader();
  let pending = "";
  let data: string[] = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      pending += (value as string | undefined) ?? "";
      // A final \r may be the first half of \r\n.
      const complete = done ? pending : pending.replace(/\r$/, "");
      const lines = complete.split(/\r\n|\n|\r/);
      const rest = lines.pop() ?? "";
      pending = rest + pending.slice(complete.length);
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
      if (done) return;
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
