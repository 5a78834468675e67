// Dialogs: forms of actions, and the confirmation of an action that destroys something.

import { h, render } from "./render.js";
import { commands } from "./command.js";

// Open a dialog. `content(close, update)` describes it; the result of `close` resolves the promise.
export function openDialog(title, content) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    const opener = document.activeElement;
    document.body.append(dialog);
    let result = null;
    const close = (value) => {
      result = value;
      dialog.close();
    };
    const update = () => render(
      h(
        "form",
        { class: "dialog", on: { submit: prevent } },
        h("h2", { id: "dialog-title" }, title),
        content(close, update),
      ),
      dialog,
    );
    dialog.setAttribute("aria-labelledby", "dialog-title");
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener && opener.isConnected) opener.focus();
      resolve(result);
    });
    update();
    dialog.showModal();
  });
}

function prevent(event) {
  event.preventDefault();
}

// Ask before an action. `loss` says what will be lost; with `name` the user has to type it.
// `act` does it, and its error is shown in the dialog. `copy` is {method, target, body, penstock}.
export function confirmAction({ title, loss, name, label, act, copy }) {
  const state = { typed: "", error: "", isBusy: false };
  return openDialog(title, (close, update) => {
    const isAllowed = (!name || state.typed === name) && !state.isBusy;
    const run = async () => {
      if (!isAllowed) return;
      state.isBusy = true;
      update();
      try {
        await act();
        close(true);
      } catch (error) {
        state.error = error.message;
        state.isBusy = false;
        update();
      }
    };
    return [
      h("p", { class: "loss" }, loss),
      name ? h("label", { class: "field" }, h("span", null, `Type ${name} to confirm`),
        h("input", { value: state.typed, autocomplete: "off", autofocus: true, on: { input: (event) => { state.typed = event.target.value; update(); } } })) : null,
      state.error ? h("p", { class: "notice bad", role: "alert" }, state.error) : null,
      copy ? commands(copy) : null,
      h("div", { class: "actions" },
        h("button", { type: "button", on: { click: () => close(false) } }, "Cancel"),
        h("button", { type: "submit", class: "danger", disabled: !isAllowed || null, on: { click: run } }, state.isBusy ? "Working…" : label)),
    ];
  });
}

// A form whose fields are rendered by `fields(values, update)`, and which ends when `act(values)` succeeds.
export function formDialog({ title, values, fields, label, act, copy }) {
  const state = { error: "", isBusy: false };
  return openDialog(title, (close, update) => {
    const run = async () => {
      state.isBusy = true;
      state.error = "";
      update();
      try {
        close((await act(values)) ?? true);
      } catch (error) {
        state.error = error.message;
      }
      state.isBusy = false;
      update();
    };
    return [
      fields(values, update),
      state.error ? h("p", { class: "notice bad", role: "alert" }, state.error) : null,
      copy ? commands(copy(values)) : null,
      h("div", { class: "actions" },
        h("button", { type: "button", on: { click: () => close(null) } }, "Cancel"),
        h("button", { type: "submit", class: "primary", disabled: state.isBusy || null, on: { click: run } }, state.isBusy ? "Working…" : label)),
    ];
  });
}
