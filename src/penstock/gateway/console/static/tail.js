// A live tail: messages as they are written, at most 50 a second on the screen; the rest is counted.

import { url } from "./api.js";

export const PER_SECOND = 50;
const KEPT = 500;

export class Tail {
  constructor(topic, onMessages, open = (target) => new EventSource(target), now = () => Date.now()) {
    this.messages = [];
    this.skipped = 0;
    this.isConnected = false;
    this.onMessages = onMessages;
    this.now = now;
    this.second = 0;
    this.inSecond = 0;
    this.source = open(url(["v1", "topics", topic, "events"], { from: "latest" }));
    this.source.onopen = () => {
      this.isConnected = true;
      this.onMessages(this.messages);
    };
    this.source.onerror = () => {
      this.isConnected = false;
      this.onMessages(this.messages);
    };
    this.source.onmessage = (event) => this.take(event.data);
  }

  // Messages beyond the limit of a second are not even parsed, so a busy topic cannot freeze the page.
  take(data) {
    const second = Math.floor(this.now() / 1000);
    if (second !== this.second) {
      this.second = second;
      this.inSecond = 0;
    }
    if (++this.inSecond > PER_SECOND) {
      this.skipped++;
      return;
    }
    this.messages = [JSON.parse(data), ...this.messages].slice(0, KEPT);
    this.onMessages(this.messages);
  }

  status() {
    const skipped = this.skipped ? ` ${this.skipped.toLocaleString("en-US")} were left out: the tail shows at most ${PER_SECOND} a second.` : "";
    return `${this.isConnected ? "Following the topic." : "Connecting…"}${skipped}`;
  }

  close() {
    this.source.close();
  }
}
