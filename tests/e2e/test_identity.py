"""A learner of the local engine, in its sandbox, has an identity token that a verifier takes."""

from __future__ import annotations

from pathlib import Path

from tests.api.test_identity import verify
from tests.e2e.stack import Stack, lines, manifest


def test_a_job_of_the_local_engine_proves_what_it_is(stack: Stack, tmp_path: Path) -> None:
    with (stack.home / "weft.toml").open("a") as settings:  # the issuer's URL has a port that the stack chose itself
        settings.write(f'\n[identity]\nissuer = "{stack.client.url}"\n')
    stack.kill_and_await("api")
    command = 'cp "$WEFT_ID_TOKEN_FILE" "$RESULT_DIR/token"; cat "$WEFT_ID_TOKEN_FILE"'
    job = stack.train(manifest(command, identity={"audience": "sts.example.com"}), None).wait()
    (found,) = [file.path for file in job.files() if file.path.endswith("token")]
    token = job.download_file(found, tmp_path / "token").read_text()
    claims = verify(stack.client.url, token, "sts.example.com")
    assert claims["sub"] == f"project:{claims['weft']['project_id']}:job:{job.id}"
    assert (claims["weft"]["attempt"], claims["weft"]["learner"]) == (1, 1)
    assert token not in "".join(lines(job)), "it is masked in the log"
