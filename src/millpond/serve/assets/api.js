// Requests to the app.

export class Failed extends Error {
  constructor(status, problems) {
    super(problems.length ? problems[0].message : `The app answered with ${status}.`);
    this.status = status;
    this.problems = problems;
  }
}

async function answered(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => ({ problems: [] }));
  throw new Failed(response.status, body.problems || []);
}

export const get = async (path) => (await answered(await fetch(path))).json();
export const text = async (path) => (await answered(await fetch(path))).text();

export async function post(path, body, signal) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  return (await answered(response)).json();
}

/** {columns, rows, row_count, truncated} of a query, or {changed}. */
export const query = (sql, more = {}, signal = undefined) => post("/api/query", { sql, format: "json", ...more }, signal);

/** A name as SQL has it. */
export const quoted = (name) => "`" + name.replaceAll("`", "``") + "`";
