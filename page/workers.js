// Work in the background: a worker answers each message on a port of its own.

/** Return a worker's answer. @param {Worker} worker @param {any} message @returns {Promise<any>} */
export function ask(worker, message) {
  return new Promise((resolve, reject) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data: { answer, error } }) => (error === undefined ? resolve(answer) : reject(new Error(error)));
    worker.onerror = (event) => reject(new Error(event.message || "the worker could not be started"));
    worker.postMessage(message, [port2]);
  });
}

/** Answer the messages to this worker by an action. @param {(message: any) => any} action */
export function answerBy(action) {
  self.onmessage = async (/** @type {MessageEvent} */ { data, ports: [port] }) => {
    try {
      port.postMessage({ answer: await action(data) });
    } catch (error) {
      port.postMessage({ error: error.message });
    }
  };
}
