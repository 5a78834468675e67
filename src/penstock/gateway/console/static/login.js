// The session of this browser, where the gateway asks its clients to log in.

import { get, request, session } from "./api.js";
import { openDialog } from "./dialog.js";
import { h } from "./render.js";

function use(found) {
  session.user = found.user;
  session.csrf = found.csrf;
}

// Find the user of this browser, and ask for a password if there is none.
export async function enter() {
  session.renew = renew;
  use(await get("/v1/session"));
}

export async function leave() {
  await request("DELETE", "/v1/session");
  location.reload();
}

let renewing = null;

// Ask for a password until one is right; all requests that wait for it share one dialog.
function renew() {
  renewing ??= ask().finally(() => {
    renewing = null;
  });
  return renewing;
}

async function ask() {
  while (!(await openDialog("Log in", form()))) {
    // The dialog was closed without a login, and the page can show nothing without one.
  }
}

function form() {
  const state = { user: session.user, password: "", error: "", isBusy: false };
  return (close, update) => {
    const run = async () => {
      if (state.isBusy || !state.user || !state.password) return;
      state.isBusy = true;
      update();
      try {
        use(await request("POST", "/v1/session", { user: state.user, password: state.password }, undefined, false));
        close(true);
      } catch (error) {
        state.error = error.status === 401 ? "The user or the password is wrong." : error.message;
        state.isBusy = false;
        update();
      }
    };
    const set = (name) => (event) => {
      state[name] = event.target.value;
    };
    return [
      h("label", null, "User", h("input", { name: "user", autocomplete: "username", value: state.user, on: { input: set("user") } })),
      h("label", null, "Password", h("input", { name: "password", type: "password", autocomplete: "current-password", on: { input: set("password") } })),
      state.error ? h("p", { class: "notice bad", role: "alert" }, state.error) : null,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "primary", disabled: state.isBusy, on: { click: run } }, "Log in")),
    ];
  };
}
