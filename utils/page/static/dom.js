// The page's elements by name.

/** @param {string} id */
export const element = (id) => document.getElementById(id);
