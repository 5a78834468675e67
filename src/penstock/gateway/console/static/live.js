// The one event stream of this tab: figures of what is on the screen, once a second. A hidden tab has none.

import { contact, url } from "./api.js";

export class Live {
  constructor(onFigures, open = (target) => new EventSource(target), isHidden = () => document.hidden) {
    this.onFigures = onFigures;
    this.open = open;
    this.isHidden = isHidden;
    this.wanted = null;
    this.source = null;
    this.shown = "";
  }

  // Choose what to receive: {topics, groups, overview}; null for nothing.
  want(wanted) {
    this.wanted = wanted;
    this.apply();
  }

  // Open, replace or close the stream; called also when the tab is hidden or shown.
  apply() {
    const target = this.wanted && !this.isHidden() ? this.target() : "";
    if (target === this.shown) return;
    this.shown = target;
    this.close();
    if (!target) return;
    const source = this.open(target);
    this.source = source;
    source.onmessage = (event) => {
      contact.lastAnswer = Date.now();
      if (contact.isLost) {
        contact.isLost = false;
        contact.onChange();
      }
      this.onFigures(JSON.parse(event.data));
    };
    source.onerror = () => {
      if (!contact.isLost) {
        contact.isLost = true;
        contact.onChange();
      }
    };
  }

  target() {
    const { topics = [], groups = [], overview = false } = this.wanted;
    return url(["v1", "live"], {
      topics: topics.slice(0, 60).join(","), groups: groups.filter((name) => !name.includes(",")).slice(0, 60).join(","), overview: overview ? "true" : "",
    });
  }

  close() {
    if (this.source) this.source.close();
    this.source = null;
  }
}
