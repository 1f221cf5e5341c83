// Changes of the classes, and of the objects that have them.

import { ClassList } from "./classlist.js";
import { project, screen, session } from "./current.js";
import { edit } from "./edits.js";
import { behindGate } from "./gate.js";
import { showFilterClasses } from "./imagelist.js";
import { hint } from "./notices.js";
import { isEmpty } from "./objects.js";

const classList = new ClassList({ add: addClass, choose: chooseClass, rename: renameClass, recolour: (id, color) => changeClass(id, { color }), move: moveClass, remove: removeClass });

export function showClasses() {
  classList.show(project.classes, project.classId, (id) => project.countOf(id));
  showFilterClasses(project.classes);
}

function saveClasses() {
  project.saveProject();
  showClasses();
}

/** Use a class for new objects. */
function useClass(id) {
  project.classId = id;
  project.saveProject();
  if (session) {
    const { objects } = session;
    objects.classId = id;
    if (isEmpty(objects.active)) {
      objects.useClasses(new Set(project.classes.map((category) => category.id)));
      project.changed(session);
      screen.show();
    }
  }
  showClasses();
}

/** Use a class for new objects, and for the selected one. */
export function chooseClass(id) {
  useClass(id);
  if (!session) return;
  const { active } = session.objects, { name } = project.categoryOf(id);
  if (isEmpty(active) || (active.classId === id && !active.proposal)) {
    hint(`Class of new objects: ${name}`);
    return;
  }
  edit((objects) => objects.change({ classId: id, proposal: false }));
  hint(`${active.proposal ? "proposal" : project.categoryOf(active.classId).name} → ${name}: ${active.name}`);
}

/** Change the name or the colour of a class. */
function changeClass(id, fields) {
  project.changeClass(id, fields);
  saveClasses();
  if (session) screen.show();
}

/** Move a class to another place: the first nine have number keys. */
function moveClass(id, index) {
  project.moveClass(id, index);
  saveClasses();
}

function addClass(name) {
  useClass(project.addClass(name).id);
}

function renameClass(id, name) {
  const isTaken = project.classes.some((category) => category.id !== id && category.name === name);
  if (isTaken) hint(`There is a class ${name} already: choose another name`);
  else changeClass(id, { name });
}

async function removeClass(id) {
  const count = project.countOf(id), { name } = project.categoryOf(id);
  const other = project.classes.find((category) => category.id !== id);
  if (count && !window.confirm(`Delete the class ${name}? Its ${count} objects become ${other.name}.`)) return;
  const replacement = await behindGate(() => project.removeClass(id, session));
  if (session) {
    session.objects.replaceClass(id, replacement);
    session.objects.classId = project.classId;
    project.changed(session);
    screen.showPanel();
  }
  saveClasses();
}
