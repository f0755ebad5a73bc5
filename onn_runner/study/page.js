"use strict";
(function () {
  function say(words) {
    document.getElementById("said").textContent = words;
  }

  function select(code) {
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  function copied(code) {
    const byHand = function () {
      select(code);
      return document.execCommand("copy") ? Promise.resolve() : Promise.reject(new Error("refused"));
    };
    return navigator.clipboard ? navigator.clipboard.writeText(code.textContent).catch(byHand) : byHand();
  }

  for (const button of document.querySelectorAll("button.copy")) {
    const code = button.parentElement.querySelector("code");
    const label = button.firstChild;
    button.hidden = false;
    button.addEventListener("click", function () {
      copied(code).then(
        function () { label.nodeValue = "Copied"; say("The command is copied."); },
        function () { label.nodeValue = "Press Ctrl+C"; say("The command is selected; copy it by hand."); }
      ).finally(function () {
        window.setTimeout(function () { label.nodeValue = "Copy"; }, 2000);
      });
    });
  }

  for (const choice of document.querySelectorAll(".choice")) {
    const panels = Array.from(choice.querySelectorAll(".panel"));
    if (panels.length < 2) {
      continue;
    }
    const group = document.createElement("div");
    group.className = "buttons";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", choice.dataset.label);
    const buttons = panels.map(function (panel) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = panel.dataset.name;
      button.addEventListener("click", function () { show(panel); });
      group.append(button);
      return button;
    });
    function show(chosen) {
      panels.forEach(function (panel, place) {
        panel.hidden = panel !== chosen;
        buttons[place].setAttribute("aria-pressed", String(panel === chosen));
      });
    }
    choice.prepend(group);
    choice.classList.add("chosen");
    show(panels[0]);
  }

  window.addEventListener("beforeprint", function () {
    for (const details of document.querySelectorAll("details")) {
      details.open = true;
    }
  });
})();
