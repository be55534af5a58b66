// Keys and values: bytes as text, JSON or hex.

/** @param {string} base64 @returns {Uint8Array} */
export function decoded(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/**
 * The text that the bytes are in UTF-8; null if they are not.
 * @param {Uint8Array} bytes
 */
export function utf8(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/**
 * Bytes in a format. "auto" is text, else hex; what a format cannot show is shown as with "auto".
 * @param {string | null} base64
 * @param {string} format "auto", "text", "json" or "hex"
 */
export function shown(base64, format) {
  if (base64 === null) return "null";
  const bytes = decoded(base64);
  const text = format === "hex" ? null : utf8(bytes);
  if (text === null) return bytes.length ? hex(bytes) : "(empty)";
  return (format === "json" && indented(text)) || text || "(empty)";
}

/** JSON with a line per member; null if the text is no JSON. @param {string} text */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}
