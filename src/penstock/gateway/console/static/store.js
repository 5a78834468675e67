// A small store: one object of values, and functions that are called after changes, together once a frame.

export class Store {
  constructor(values, schedule = (work) => requestAnimationFrame(work)) {
    this.values = { ...values };
    this.listeners = new Set();
    this.schedule = schedule;
    this.isScheduled = false;
  }

  get(name) {
    return this.values[name];
  }

  // Set values; listeners are called later and only if one has changed.
  set(changes) {
    let changed = false;
    for (const [name, value] of Object.entries(changes)) {
      if (!Object.is(this.values[name], value)) {
        this.values[name] = value;
        changed = true;
      }
    }
    if (changed) this.touch();
  }

  // Call the listeners in the next frame, although no value was replaced.
  touch() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    this.schedule(() => {
      this.isScheduled = false;
      for (const listener of [...this.listeners]) listener(this.values);
    });
  }

  // Add a listener; the returned function removes it.
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
