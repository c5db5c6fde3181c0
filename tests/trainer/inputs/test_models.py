"""A version of the registry's as pretrained model, and the agent's report for the lineage."""

from __future__ import annotations

from tests.trainer.agents import Launch
from tests.trainer.conftest import Bucket, StartApi

from weft_trainer.stores.store import Stored
from weft_trainer.stores.summary import summary

MODEL = {"id": "mv-1", "reference": "digits@3"}


def test_a_version_of_the_installations_own_store(start_api: StartApi, launch: Launch) -> None:
    command = "cat $PRETRAINED_DIR/model.bin $PRETRAINED_DIR/logs/x; echo; echo $PRETRAINED_MODEL"
    for folder in ("first", "again"):
        api = start_api(command, model=MODEL)
        api.objects |= {"pretrained/model.bin": b"weights", "pretrained/logs/x": b"!"}
        assert launch(api, folder=folder).wait() == 0
        [learner] = api.learners.values()
        assert learner.printed == ["weights!", "digits@3"]
        assert learner.messages == ["2 files of model digits@3"]
    # The second learner on the node only listed: each file came once.
    assert api.object_calls["pretrained", "list"] == 1
    assert api.object_calls["pretrained", "get"] == 0


def test_objects_of_a_version_that_are_gone(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo ran", model=MODEL)
    assert launch(api).wait() == 1
    assert api.learners[0].exit is not None
    assert api.learners[0].exit["reason"] == (
        "S301 the objects of model digits@3 are gone from the installation's own store"
    )


def test_what_an_agent_reports_for_lineage(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    bucket.put("lineage/a", b"1")
    bucket.put("lineage/b/c", b"22")
    inputs = [{"id": "data", "location": bucket.location("lineage")}]
    api = start_api("cp -r $DATA_DIR/. $RESULT_DIR", learners=2, data=inputs, registers=True)
    agents = [launch(api, rank) for rank in range(2)]
    assert [agent.wait() for agent in agents] == [0, 0]
    said = api.learners[0].inputs["data"]
    assert (said["files"], said["bytes"]) == (2, 3)
    etags = {"a": "c4ca4238a0b923820dcc509a6f75849b", "b/c": "b6d767d2f8ed5d21a44b0e5886680cb9"}  # MD5
    assert said == summary([Stored("b/c", 2, etags["b/c"]), Stored("a", 1, etags["a"])], etags=True)
    first, second = (api.learners[rank].exit or {} for rank in range(2))
    stored = [Stored(key.removeprefix("results/"), len(data)) for key, data in api.objects.items() if "results/" in key]
    assert first["outputs"] == summary(stored, etags=False)
    assert "outputs" not in second
