// The fields of protobuf messages, as far as event files need them.

export const VARINT = 0;
export const FIXED64 = 1;
export const BYTES = 2;
export const FIXED32 = 5;

export interface Field {
  number: number;
  wire: number;
  /** Of a varint; else 0. */
  value: number;
  /** Of every other field; else empty. */
  bytes: Uint8Array;
}

const NONE = new Uint8Array();

/** Raises RangeError for a message that is damaged. */
export function* fields(message: Uint8Array): Generator<Field> {
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let shift = 0; shift < 49; shift += 7) {
      const byte = message[at++];
      if (byte === undefined) throw new RangeError("cut off");
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    let large = BigInt(value);
    for (let shift = 49n; shift < 70n; shift += 7n) {
      const byte = message[at++];
      if (byte === undefined) throw new RangeError("cut off");
      large += BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return Number(BigInt.asIntN(64, large));
    }
    throw new RangeError("a number that is too long");
  };
  while (at < message.length) {
    const key = varint();
    const number = Math.floor(key / 8);
    const wire = key % 8;
    if (wire === VARINT) {
      yield { number, wire, value: varint(), bytes: NONE };
      continue;
    }
    if (wire !== BYTES && wire !== FIXED64 && wire !== FIXED32) throw new RangeError("a wire type that is not used any more");
    const length = wire === BYTES ? varint() : wire === FIXED64 ? 8 : 4;
    if (length < 0 || at + length > message.length) throw new RangeError("cut off");
    yield { number, wire, value: 0, bytes: message.subarray(at, at + length) };
    at += length;
  }
}
