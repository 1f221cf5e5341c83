// Numbers in annotation files, which some programs write as text.

const DECIMAL = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;

/**
 * Return a finite number, also one written as text.
 *
 * Nothing else is a number: not `true`, null, a list, an empty text or the text "12abc".
 * @param {unknown} value
 * @returns {number | null} null: not a finite number
 */
export function numberOf(value) {
  const isText = typeof value === "string" && DECIMAL.test(value.trim());
  if (!isText && typeof value !== "number") return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

/**
 * Return a list of finite numbers, also of those written as text.
 * @param {unknown} values
 * @returns {number[] | null} null: not a list, or a member is not a finite number
 */
export function numbersOf(values) {
  if (!Array.isArray(values)) return null;
  const numbers = values.map(numberOf);
  return numbers.includes(null) ? null : numbers;
}
