// Code that only saved, exported and imported annotations need. It is not loaded with the page, but once that is idle: then it
// also works while the service is away.

/** @returns {Promise<typeof import("./transfer.js")>} */
export async function loadTransfer() {
  try {
    return await import("./transfer.js");
  } catch {
    throw new Error("A part of this page could not be loaded. Try again when the service responds, or reload the page.");
  }
}

/** Load it ahead of its use. A failure is shown where it is used. */
export function loadWhenIdle() {
  const load = () => loadTransfer().catch(() => {});
  // Safari has no such callback.
  if (window.requestIdleCallback) requestIdleCallback(load);
  else setTimeout(load, 1000);
}
