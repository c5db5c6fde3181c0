// Reads a tar in the POSIX format (pax), as Python's `tarfile` writes it: blocks of 512 bytes. A file is a header, then its
// content, filled up to a whole block. A long name comes before it, in a record of its own.
const BLOCK = 512;
const NAME = [0, 100] as const;
const SIZE = [124, 12] as const;
const TYPE = 156;
const PREFIX = [345, 155] as const;

/** The files by their names. What comes after a damaged header is left out. */
export function untar(archive: Uint8Array): Map<string, Uint8Array> {
  const files = new Map<string, Uint8Array>();
  let extended = new Map<string, string>();
  for (let at = 0; at + BLOCK <= archive.length; ) {
    const header = archive.subarray(at, at + BLOCK);
    if (header.every((byte) => byte === 0)) break;
    const size = Number(extended.get("size") ?? parseInt(text(header, SIZE), 8));
    if (!Number.isSafeInteger(size) || size < 0) break;
    const content = archive.subarray(at + BLOCK, at + BLOCK + size);
    const type = String.fromCharCode(header[TYPE] ?? 0);
    if (type === "x") extended = records(content);
    else {
      const prefix = text(header, PREFIX);
      const name = extended.get("path") ?? (prefix ? `${prefix}/` : "") + text(header, NAME);
      if (type === "0" || type === "\0") files.set(name, content);
      extended = new Map();
    }
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
  return files;
}

function text(header: Uint8Array, [start, length]: readonly [number, number]): string {
  const bytes = header.subarray(start, start + length);
  const end = bytes.indexOf(0);
  return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end)).trim();
}

/** Records of the form `LENGTH NAME=VALUE\n`; the length is that of the whole record. */
function records(content: Uint8Array): Map<string, string> {
  const found = new Map<string, string>();
  for (let at = 0; at < content.length; ) {
    const space = content.indexOf(0x20, at);
    const length = parseInt(new TextDecoder().decode(content.subarray(at, space)), 10);
    if (space < 0 || !(length > 0)) break;
    const record = new TextDecoder().decode(content.subarray(space + 1, at + length - 1));
    const equals = record.indexOf("=");
    found.set(record.slice(0, equals), record.slice(equals + 1));
    at += length;
  }
  return found;
}
