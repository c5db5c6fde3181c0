"""The shell in a learner, in the browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.dashboard.conftest import HOSTILE, Site, faults
from tests.e2e.stack import Stack, eventually, manifest


def test_a_shell_leads_into_a_learner_until_its_program_ends(
    page: Page, viewer: Page, stack: Stack, site: Site
) -> None:
    job = stack.train(manifest("echo secret > left; exec sleep 3600", name=HOSTILE, cpus=0.1))
    page.goto(f"/jobs/{job.id}")
    link = page.get_by_role("link", name="shell in learner 1, in a new tab")
    expect(link).to_be_visible()
    viewer.goto(f"/jobs/{job.id}")
    expect(viewer.get_by_role("link", name="log of learner 1")).to_be_visible()
    expect(viewer.get_by_role("link", name=re.compile("shell"))).to_have_count(0)

    page.goto(site.url + str(link.get_attribute("href")))
    rows, status = page.locator(".xterm-rows"), page.get_by_role("status")
    expect(status).to_be_empty()
    page.keyboard.type("cat left; stty size; echo $TERM; printf '\\033[31m%s\\033[0m\\n' $((6*7))\n")
    expect(rows).to_contain_text(re.compile(r"secret.*xterm-256color.*42"))
    assert page.get_by_role("link", name=job.id).get_attribute("href") == f"/jobs/{job.id}"
    assert faults(page) == []

    def size() -> tuple[int, ...]:
        page.keyboard.type("clear; stty size\n")
        found = re.search(r"(\d+) (\d+)\s*[^\d\s]", str(rows.text_content()))
        return tuple(map(int, found.groups())) if found else ()

    large = eventually(size, "the size")
    page.set_viewport_size({"width": 700, "height": 400})
    eventually(lambda: (now := size()) and now[0] < large[0] and now[1] < large[1], "a smaller terminal")
    page.keyboard.type("exit 3\n")
    expect(status).to_have_text("The shell ended with exit code 3.")
    page.get_by_role("button", name="Open again").click()
    expect(status).to_be_empty()
    page.keyboard.type("echo once more\n")
    expect(rows).to_contain_text("once more")

    job.halt(grace_seconds=0)
    expect(status).to_have_text(re.compile("^The shell (ended|broke)"))
    job.wait(check=False)
    page.get_by_role("button", name="Open again").click()
    expect(status).to_have_text("No shell: the job is HALTED: no learner of it runs.")
    viewer.goto(f"/jobs/{job.id}/shell/1")
    expect(viewer.get_by_role("status")).to_have_text(re.compile("^No shell: .*editor"))
