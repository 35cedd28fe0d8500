// Values that are kept between visits, by a key of the browser's storage; what the browser does not
// keep, for this visit alone.

const visit = new Map();

export function recall(key) {
  if (visit.has(key)) return visit.get(key);
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

// Returns a kept object; an empty one if there is none, or a damaged one.
export function recallObject(key) {
  try {
    return JSON.parse(recall(key)) ?? {};
  } catch {
    return {};
  }
}

// Keeps a value; returns whether there was room for it.
export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
    visit.delete(key);
  } catch (error) {
    visit.set(key, value);
    return error.name !== "QuotaExceededError"; // else it is forbidden, as in a foreign frame
  }
  return true;
}
