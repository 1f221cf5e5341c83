// A gate for images: while the objects of several change, none is opened or removed. What is drawn on it would be overwritten.

/** @type {Promise<any>} settled when the gate is open */
let open = Promise.resolve();

/** Wait until the gate is open. */
export function gate() {
  return open;
}

/**
 * Do some work after earlier such work, with the gate closed.
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export function behindGate(work) {
  const done = open.then(work);
  open = done.then(() => {}, () => {});
  return done;
}
