"""What a real browser lets happen on a page."""


def smuggled(browser):
    """What a page lets a script do that was smuggled into it: names of what it did."""
    return browser.execute_async_script("""
      const done = arguments[0];
      window.did = {};
      document.body.insertAdjacentHTML("beforeend", "<img src='data:,' onerror='window.did.handler = true'>");
      const script = document.createElement("script");
      script.textContent = "window.did.script = true";
      document.body.append(script);
      fetch("data:,x").then(() => { window.did.request = true; }, () => {}).then(
        () => setTimeout(() => done(window.did), 300));
    """)
