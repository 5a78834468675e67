// The rights of the user on what a page shows, so that an action that would be refused says which right is missing.
// The gateway checks every request itself: this is about what to offer.

import { get, session, url } from "./api.js";
import { button } from "./widgets.js";

const AGE_MS = 30_000;
const CLUSTER = "kafka-cluster";
const known = new Map();

// Called when rights have become known.
export const rights = { onChange: () => {} };

export const onTopic = (operation, name) => ({ operation, kind: "TOPIC", name });
export const onGroup = (operation, name) => ({ operation, kind: "GROUP", name });
export const onCluster = (operation) => ({ operation, kind: "CLUSTER", name: CLUSTER });
export const onTransaction = (operation, name) => ({ operation, kind: "TRANSACTIONAL_ID", name });

// Whether the user has a right. Everything counts as allowed until the answer is there, and where nobody logs in.
export function may({ operation, kind, name }) {
  if (!session.user) return true;
  const key = `${kind} ${name}`;
  const found = known.get(key);
  if (!found || Date.now() - found.at > AGE_MS) ask(key, kind, name, found);
  return !found?.allowed || found.allowed.includes(operation);
}

async function ask(key, kind, name, before) {
  known.set(key, { at: Date.now(), allowed: before?.allowed });
  try {
    const { allowed } = await get(url(["v1", "rights"], { resource_type: kind, name }));
    known.set(key, { at: Date.now(), allowed });
    rights.onChange();
  } catch {
    // Without an answer the action stays, and the gateway refuses it if it must.
  }
}

// The sentence about a right that is missing. Pure.
export function missing({ operation, kind, name }) {
  return `You need the right ${operation} on ${kind === "CLUSTER" ? "the cluster" : `${kind.toLowerCase().replaceAll("_", " ")} ${name}`}.`;
}

// A button for an action that needs rights; without them it is disabled and says which one is missing.
export function guarded(label, onClick, needs, options = {}) {
  const lacking = needs.find((need) => !may(need));
  if (!lacking) return button(label, onClick, options);
  return button(label, onClick, { ...options, disabled: true, title: missing(lacking) });
}
