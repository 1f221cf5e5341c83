// The connection to the service: whether it is away or busy, since when, and what is repeated once it is back.

const FIRST_PAUSE_MS = 1000, MAX_PAUSE_MS = 30_000;
/** An absence that begins so soon after the last one goes on with its pauses, for example when only some requests fail. */
const SAME_ABSENCE_MS = 60_000;
/** Time without an answer after which a page on the screen asks whether the service is there. */
const MAX_SILENCE_MS = 5000;
const TICK_MS = 1000;
/** Time for an answer to that question. */
const ASK_TIMEOUT_MS = 10_000;

/** @typedef {"" | "away" | "busy"} State */

export class Connection {
  /** @type {Set<() => void>} actions to repeat */
  #failed = new Set();
  /** @type {Set<object>} requests that were refused, and are repeated after a while */
  #refused = new Set();
  #pauseMs = FIRST_PAUSE_MS;
  #backAt = -Infinity;
  #answeredAt = 0;
  #timer = 0;
  #asking = false;
  /** @type {State} */
  state = "";
  /** Time by `performance.now()` since which the state holds. */
  #since = 0;
  /** Called when the service is back, before anything is repeated. */
  onBack = () => {};
  /** @type {(state: State, seconds: number) => void} called when the state changes, and each second unless it is "" */
  onState = () => {};

  constructor() {
    document.addEventListener("visibilitychange", () => this.check());
    window.addEventListener("online", () => this.check());
    setInterval(() => this.#tick(), TICK_MS);
  }

  /** Return whether the service is away. */
  get away() {
    return this.state === "away";
  }

  /** Note that the service is away; `retry` is called once it is back. */
  lose(retry) {
    if (!this.away) {
      if (performance.now() - this.#backAt > SAME_ABSENCE_MS) this.#pauseMs = FIRST_PAUSE_MS;
      this.#wait();
    }
    this.#failed.add(retry ?? (() => {}));
    this.#enter("away");
  }

  /** Do not repeat this action. */
  drop(retry) {
    this.#failed.delete(retry);
  }

  /** Note that the service is there, but refuses a request, which waits to be repeated. @param {object} request */
  refuse(request) {
    this.#refused.add(request);
    if (!this.away) this.#enter("busy");
  }

  /** Note that a request is not repeated: it was answered, given up or aborted. @param {object} request */
  finish(request) {
    if (this.#refused.delete(request) && !this.#refused.size && this.state === "busy") this.#enter("");
  }

  /** Note that the service does what a request asks for. @param {object} request */
  answered(request) {
    this.#answeredAt = performance.now();
    this.finish(request);
  }

  /** Ask now whether the service is back. A hidden page does not ask. */
  async check() {
    if (!this.away || document.hidden) return;
    clearTimeout(this.#timer);
    if (!(await this.#ask())) {
      this.#wait();
      return;
    }
    const failed = [...this.#failed];
    this.#failed.clear();
    this.#backAt = performance.now();
    this.#enter("");
    this.onBack();
    for (const retry of failed) retry();
  }

  /** Return whether the service is ready; null: another call is asking. */
  async #ask() {
    if (this.#asking) return null;
    this.#asking = true;
    const options = { cache: /** @type {RequestCache} */ ("no-store"), signal: AbortSignal.timeout(ASK_TIMEOUT_MS) };
    const isReady = await fetch("readyz", options).then((response) => response.ok, () => false);
    this.#asking = false;
    if (isReady) this.#answeredAt = performance.now();
    return isReady;
  }

  /** Show how long the state lasts, and find out whether a service that was not asked for a while is there. */
  async #tick() {
    if (this.state) this.#tell();
    if (this.away || document.hidden || performance.now() - this.#answeredAt < MAX_SILENCE_MS) return;
    if ((await this.#ask()) === false) this.lose(null);
  }

  /** @param {State} state */
  #enter(state) {
    if (state === this.state) return;
    this.state = state;
    this.#since = performance.now();
    this.#tell();
  }

  #tell() {
    this.onState(this.state, Math.round((performance.now() - this.#since) / 1000));
  }

  #wait() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.check(), this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }
}
