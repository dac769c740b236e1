import { createElement, useState } from "react";
import { createRoot } from "react-dom/client";

// A controlled field: React writes its state back into the field after every event.
function Letter() {
  const [text, setText] = useState("");
  window.text = () => text;
  return createElement("textarea", { value: text, onChange: (event) => setText(event.target.value), "aria-label": "Letter" });
}

createRoot(document.getElementById("at")).render(createElement(Letter));
