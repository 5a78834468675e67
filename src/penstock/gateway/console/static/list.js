// A long list that the server searches, sorts and pages: its rows so far, and the next page when it is near.

import { get, url } from "./api.js";

const PAGE = 200;

// Whether a query differs from another by a longer search alone. Pure.
export function isNarrower(query, before) {
  const rest = ({ search, ...others }) => JSON.stringify(others);
  return rest(query) === rest(before) && query.search.startsWith(before.search ?? "");
}

export class ServerList {
  // `fetchPage(query)` may replace the request in tests; `field` names the rows in the response.
  constructor(segments, field, context, fetchPage = (target, signal) => get(target, signal)) {
    this.segments = segments;
    this.field = field;
    this.context = context;
    this.fetchPage = fetchPage;
    this.rows = null;
    this.total = 0;
    this.cursor = null;
    this.isLoading = false;
    this.turn = 0;
  }

  // Load the first page of a query; answers to older queries are dropped.
  async load(query) {
    this.preview(query);
    this.query = query;
    const turn = ++this.turn;
    this.isLoading = true;
    const page = await this.fetchPage(url(this.segments, { ...query, limit: PAGE }), this.context.signal);
    if (turn !== this.turn) return;
    this.isLoading = false;
    this.rows = page[this.field];
    this.take(page);
  }

  // Show the rows that match a new search at once, until the server has answered; none is no answer.
  preview(query) {
    if (!this.rows || !query.search || !isNarrower(query, this.query)) return;
    const words = query.search.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.rows.filter((row) => words.every((word) => (row.name ?? row.id).toLowerCase().includes(word)));
    if (!found.length) return;
    this.rows = found;
    this.context.update();
  }

  async more() {
    if (this.isLoading || !this.cursor) return;
    this.isLoading = true;
    const turn = this.turn;
    const page = await this.fetchPage(url(this.segments, { ...this.query, limit: PAGE, cursor: this.cursor }), this.context.signal);
    if (turn !== this.turn) return;
    this.isLoading = false;
    this.rows = [...this.rows, ...page[this.field]];
    this.take(page);
  }

  take(page) {
    this.total = page.total;
    this.cursor = page.cursor;
    this.context.update();
  }

  // Replace rows by newer figures of the same name.
  refresh(rows, name) {
    if (!this.rows) return;
    const newer = new Map(rows.map((row) => [row[name], row]));
    this.rows = this.rows.map((row) => newer.get(row[name]) || row);
  }
}
