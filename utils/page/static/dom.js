// DOM access.

/** @param {string} id */
export const element = (id) => document.getElementById(id);
