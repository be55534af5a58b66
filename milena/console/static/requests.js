// Requests to the server. Every failure is an ApiError whose message can be shown.

export class ApiError extends Error {
  /** @param {string} message @param {number} status 0: the server did not answer */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
async function call(method, path, body) {
  /** @type {RequestInit} */
  const options = { method, credentials: "same-origin", cache: "no-store" };
  if (method !== "GET") {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body ?? {});
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new ApiError("the server does not answer; `milena up` may have ended", 0);
  }
  const text = await response.text();
  /** @type {any} */
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    throw new ApiError(`${method} ${path}: an answer that is not JSON (status ${response.status})`, response.status);
  }
  if (!response.ok) {
    throw new ApiError(answer?.error ?? `${method} ${path}: status ${response.status}`, response.status);
  }
  return answer;
}

/** @param {string} path */
export const get = (path) => call("GET", path);
/** @param {string} path @param {unknown} [body] */
export const post = (path, body) => call("POST", path, body);
/** @param {string} path */
export const remove = (path) => call("DELETE", path);

/**
 * A path with a query; values that are empty are left out.
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} values
 */
export function query(path, values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return given.length ? `${path}?${parameters}` : path;
}
