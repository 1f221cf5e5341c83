// Results that are kept as long as the object they were made of.

/**
 * Return a function that calls `make` once for each object and further arguments.
 * @template T
 * @param {(object: any, ...further: any[]) => T} make
 * @returns {(object: object, ...further: any[]) => T}
 */
export function cached(make) {
  /** @type {WeakMap<object, Map<string, T>>} */
  const results = new WeakMap();
  return (object, ...further) => {
    if (!results.has(object)) results.set(object, new Map());
    const known = results.get(object), key = String(further);
    if (!known.has(key)) known.set(key, make(object, ...further));
    return known.get(key);
  };
}
