// Reconnection: while the service is away, the page asks `/readyz` with growing pauses, then repeats what failed.

const FIRST_PAUSE_MS = 1000, MAX_PAUSE_MS = 30_000;
/** An absence that begins so soon after the last one goes on with its pauses, for example when only some requests fail. */
const SAME_ABSENCE_MS = 60_000;

export class Connection {
  /** @type {Set<() => void>} actions to repeat */
  #failed = new Set();
  #pauseMs = FIRST_PAUSE_MS;
  #backAt = -Infinity;
  #timer = 0;
  #asking = false;

  /** @param {() => void} onBack called when the service is back, before anything is repeated */
  constructor(onBack) {
    this.onBack = onBack;
    document.addEventListener("visibilitychange", () => this.check());
    window.addEventListener("online", () => this.check());
  }

  /** Return whether the service is away. */
  get away() {
    return this.#failed.size > 0;
  }

  /** Note that the service is away; `retry` is called once it is back. */
  lose(retry) {
    if (!this.away) {
      if (performance.now() - this.#backAt > SAME_ABSENCE_MS) this.#pauseMs = FIRST_PAUSE_MS;
      this.#wait();
    }
    this.#failed.add(retry ?? (() => {}));
  }

  /** Do not repeat this action. */
  drop(retry) {
    this.#failed.delete(retry);
  }

  /** Ask now whether the service is back. A hidden page does not ask. */
  async check() {
    if (!this.away || this.#asking || document.hidden) return;
    clearTimeout(this.#timer);
    this.#asking = true;
    const ready = await fetch("readyz", { cache: "no-store" }).then((response) => response.ok, () => false);
    this.#asking = false;
    if (!ready) {
      this.#wait();
      return;
    }
    const failed = [...this.#failed];
    this.#failed.clear();
    this.#backAt = performance.now();
    this.onBack();
    for (const retry of failed) retry();
  }

  #wait() {
    this.#timer = setTimeout(() => this.check(), this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }
}
