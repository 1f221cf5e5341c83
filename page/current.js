// What the page works on: the service and the connection to it, the project, the open image, and the screen that shows it.

import { Connection } from "./connection.js";
import { showBusy, showSaved } from "./notices.js";
import { Project } from "./project.js";
import { Screen } from "./screen.js";
import { Service } from "./service.js";

export const connection = new Connection();
export const service = new Service(connection, (reason, seconds) => showBusy(`${reason} Retrying in ${seconds} s`));
export const project = new Project(showSaved);
export const screen = new Screen((classId) => project.categoryOf(classId));

/** @type {import("./session.js").Session | null} the open image */
export let session = null;

/** @param {import("./session.js").Session | null} next */
export function setSession(next) {
  session?.close();
  session = next;
}
